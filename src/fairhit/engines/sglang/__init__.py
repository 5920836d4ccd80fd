"""fairhit inside SGLang: `--schedule-policy dlpm`, and the other names of `hooks.POLICIES`.

SGLang finds `plug_in` by the entry-point group `sglang.srt.plugins` and calls it in each of its processes.
SGLang only logs a plug-in that fails, and goes on. But this one registers the names of the policies: if it
failed, SGLang refuses `--schedule-policy dlpm` as unknown, and does not start unfair.
"""


def plug_in() -> None:
    """Register the hooks. Raises ImportError in a version of SGLang without a hook registry."""
    from fairhit.engines.sglang.hooks import register

    register()
