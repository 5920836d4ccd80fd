"""fairhit inside SGLang: `--schedule-policy dlpm`, and the other names of POLICIES.

SGLang finds `plug_in` by the entry-point group `sglang.srt.plugins` and calls it in each of its processes.
SGLang only logs a plug-in that fails, and goes on. But this one registers the names of the policies: if it
failed, SGLang refuses `--schedule-policy dlpm` as unknown, and does not start unfair.
"""

from fairhit.policies import IN_ENGINES

# SGLang keeps its own fcfs and lpm.
POLICIES = tuple(name for name in IN_ENGINES if name not in {"fcfs", "lpm"})


def plug_in() -> None:
    """Register the hooks. Raises ImportError in a version of SGLang without a hook registry."""
    from fairhit.engines.sglang.hooks import register

    register()
