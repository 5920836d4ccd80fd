"""fairhit inside SGLang: `--schedule-policy dlpm`, and the other names of POLICIES.

SGLang finds `plug_in` by its entry-point group `sglang.srt.plugins` and calls it in each of its
processes. A plug-in that fails is only logged there, and the server goes on. But ours makes the names
known: where it failed, SGLang itself refuses `--schedule-policy dlpm`, and does not start unfair.
"""

from fairhit.policies import IN_ENGINES

# SGLang has a fcfs and an lpm of its own, and keeps them.
POLICIES = tuple(name for name in IN_ENGINES if name not in {"fcfs", "lpm"})


def plug_in() -> None:
    """Register what SGLang calls back. Raises ImportError in a version that has no such registry."""
    from fairhit.engines.sglang.hooks import register

    register()
