"""SGLang's PrefillAdder, which tells our line whom it has added.

Integration points (SGLang 0.5.23): `Scheduler.get_prefill_adder_class`, made for that;
`add_one_req(req, ...)`, which appends to `can_run_list` whomever it adds, by whichever of its ways: in
full, as a first chunk, or with `ignore_eos` beside a cache that is off. The later chunks of a prompt go
through `add_chunked_req`; they were charged with the first.
"""

from typing import Any

from sglang.srt.managers.schedule_policy import PrefillAdder

from fairlead.engines.sglang.line import Line


class FairAdder(PrefillAdder):  # type: ignore[misc]  # SGLang is untyped here
    """One look's admission."""

    def __init__(self, *args: Any, line: Line, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._line = line
        line.expect_walk(self)

    def add_one_req(self, req: Any, *args: Any, **kwargs: Any) -> Any:
        """Charged as soon as it is in, before anybody else is chosen."""
        before = len(self.can_run_list)
        verdict = super().add_one_req(req, *args, **kwargs)
        if len(self.can_run_list) > before:
            self._line.admitted(req)
        return verdict
