"""The work and the duration of SGLang's forward passes, by client.

Integration points (SGLang 0.5.23):

    Scheduler.run_batch            launches a pass; under overlap scheduling it returns before the pass ends,
                                   but on a CPU, where it computes it
    Scheduler.process_batch_result waits for the result that `run_batch` returned
    ScheduleBatch                  `reqs`, `forward_mode`, `device`; of a prefill `extend_lens`,
                                   `prefix_lens`, and `decoding_reqs`, the last ones of `reqs`, which
                                   decode in the same pass
    Req                            `origin_input_ids`, `output_ids`
"""

import time
from collections.abc import Callable
from typing import Any

from fairhit.core.engine_time import PassWork
from fairhit.core.request import ClientId
from fairhit.engines.pass_meter import PassMeter

# The attribute of SGLang's result that holds the launch and the work of its pass.
_LAUNCH = "fairhit_launch"

Works = dict[ClientId, PassWork]


def works_of(batch: Any, client_of: Callable[[Any], ClientId]) -> Works:
    """Return the work that each client has in a batch. O(batch).

    Under overlap scheduling a request's last output may not be known yet: its context is one token longer.
    """
    works: Works = {}
    mode = batch.forward_mode
    if mode.is_extend() and not mode.is_target_verify():
        decoding = len(batch.reqs) - len(batch.decoding_reqs or ())
        chunks = zip(batch.reqs, batch.extend_lens, batch.prefix_lens, strict=True)
        for at, (req, tokens, before) in enumerate(chunks):
            work = works.setdefault(client_of(req), PassWork())
            if at < decoding:
                work.add_chunk(tokens, before)
            else:
                work.add_decode(before)
    elif mode.is_decode() or mode.is_target_verify():
        for req in batch.reqs:
            work = works.setdefault(client_of(req), PassWork())
            work.add_decode(len(req.origin_input_ids) + len(req.output_ids) - 1)
    return works


class PassTimes:
    """Measures each pass from its launch, or the end of the one before if that is later, to its result.

    On a CPU to the return of its launch: under overlap scheduling its result is read after the next launch,
    so that each pass would be given the duration of the next one.
    """

    def __init__(
        self, meter: PassMeter, client_of: Callable[[Any], ClientId],
        on_seconds: Callable[[ClientId, float], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._meter, self._client_of, self._on_seconds = meter, client_of, on_seconds
        self._clock = clock
        self._ended_s = 0.0

    def launched(self, batch: Any, launch: Callable[[], Any]) -> Any:
        """Launch a pass, and note in its result when that was and what it computes. O(batch)."""
        works, started_s = works_of(batch, self._client_of), self._clock()
        result = launch()
        ended_s = self._clock() if batch.device == "cpu" else None
        setattr(result, _LAUNCH, (started_s, ended_s, works))
        return result

    def ended(self, result: Any) -> None:
        """Divide the duration of a pass whose result is there among its clients. O(clients in it)."""
        launch = getattr(result, _LAUNCH, None)
        if launch is None:  # SGLang has put another result in its place
            return
        started_s, ended_s, works = launch
        if ended_s is None:
            ended_s = self._clock()
        seconds, self._ended_s = ended_s - max(started_s, self._ended_s), ended_s
        for client, part in self._meter.observe(works, seconds).items():
            self._on_seconds(client, part)
