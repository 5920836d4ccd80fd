"""A trace against a running engine: prompts as token ids, programs in order, what came back as events.

From outside a request is admitted when its first token comes; everything else is as in a simulated
run, so the same summary and the same measures read it.
"""

import asyncio
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from fairhit.core.cache.token_runs import Runs
from fairhit.errors import EngineFailed
from fairhit.local.demo.closed_loop import Connection, StreamedAnswer, now_us
from fairhit_lab.events import Admit, Decode, Dispatch, Enqueue, Event, Finish, FirstToken
from fairhit_lab.metrics.series import Series
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.studies.shared.study import Outcome
from fairhit_lab.traces.trace import TraceRow

PATH = "/v1/completions"
# Below them lie a vocabulary's special tokens.
FIRST_ID = 10
PS_PER_US = 10**6


class Tokens:
    """Ids for the trace's segments: drawn from the seed, or, of an answer, what was really said.

    `space` keeps runs apart: another one has other texts, so that nothing of it is cached.
    """

    def __init__(self, vocabulary: int, space: str) -> None:
        assert vocabulary > FIRST_ID, vocabulary
        self._vocabulary, self._space = vocabulary, space
        self._known: dict[Hashable, tuple[Random, list[int]]] = {}

    def ids(self, prompt: Runs) -> list[int]:
        """Of the whole prompt. O(its length)."""
        found: list[int] = []
        for segment, begin, end in _pieces(prompt):
            found += self._segment(segment, end)[begin:end]
        return found

    def learn(self, output: Runs, said: Sequence[int]) -> None:
        """Set ids of segment positions: children continue what was really generated."""
        at = 0
        for segment, begin, end in _pieces(output):
            new = said[at : at + end - begin]
            self._segment(segment, end)[begin : begin + len(new)] = new
            at += end - begin

    def _segment(self, segment: Hashable, length: int) -> list[int]:
        if isinstance(segment, tuple):  # plain ids, of some other vocabulary
            span = self._vocabulary - FIRST_ID
            return [FIRST_ID + each % span for each in segment]
        if segment not in self._known:
            self._known[segment] = (Random(f"{self._space}/{segment}"), [])
        rng, ids = self._known[segment]
        ids += [rng.randrange(FIRST_ID, self._vocabulary) for _ in range(length - len(ids))]
        return ids


def _pieces(runs: Runs) -> Iterator[tuple[Hashable, int, int]]:
    """Segment, first index and the index behind the last."""
    at = 0
    for segment, shift, end in runs.spans:
        yield segment, at + shift, end + shift
        at = end


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """An answered request: `pieces` are (time, tokens) of its chunks."""

    row: TraceRow
    sent_us: int
    pieces: Sequence[tuple[int, int]]
    prompt_len: int
    cached_len: int


class StreamFormat(StreamedAnswer):
    """An answer of which everything is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._data = bytearray()

    def feed(self, data: bytes, at_us: int) -> None:
        """As `StreamedAnswer`; the time of an event is that of its end."""
        super().feed(data, at_us)
        self._data += data
        # One time for each whole event so far.
        self.pieces_us = [*self.ends_us, *[at_us] * (self._data.count(b"\n\n") - len(self.ends_us))]
        self.ends_us = list(self.pieces_us)

    ends_us: Sequence[int] = ()

    def events(self) -> list[tuple[int, dict[str, object]]]:
        """When each event came, and what it says. Raises EngineFailed if the answer is no stream."""
        if self.status != 200:
            raise EngineFailed(f"status {self.status}: {bytes(self._data[:200])!r}")
        texts = bytes(self._data).split(b"\n\n")
        return [
            (at_us, json.loads(text.removeprefix(b"data: ")))
            for at_us, text in zip(self.ends_us, texts, strict=False)
            if text.startswith(b"data: {")
        ]


def heard(row: TraceRow, sent_us: int, answer: StreamFormat) -> tuple[Heard, list[int]]:
    """Return an answer and the ids of its tokens. Raises EngineFailed if a field is missing."""
    pieces, said = [], list[int]()
    usage: Mapping[str, object] = {}
    for at_us, event in answer.events():
        for choice in event.get("choices") or ():  # type: ignore[attr-defined]
            ids = choice.get("token_ids") or []
            said += ids
            if ids:
                pieces.append((at_us, len(ids)))
        usage = event.get("usage") or usage  # type: ignore[assignment]
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt_len = usage.get("prompt_tokens")
    if not isinstance(prompt_len, int) or not isinstance(cached or 0, int):
        raise EngineFailed(f"{row.id}: no usage in the answer")
    if len(said) != row.output_len:
        raise EngineFailed(f"{row.id}: expected {row.output_len} tokens, got {len(said)}")
    known = Heard(
        row=row, sent_us=sent_us, pieces=pieces, prompt_len=prompt_len, cached_len=cached or 0
    )
    return known, said


class Replay:
    """Replay of a trace against an engine. `finished` grows as answers end; a failure ends the run.

    The engine knows a client as `space/client`, so that it has neither credit nor debt from other runs;
    `finished` has the trace's name.
    """

    def __init__(
        self,
        rows: Iterable[TraceRow],
        *,
        host: str,
        port: int,
        key: str,
        model: str,
        tokens: Tokens,
        space: str,
    ) -> None:
        self.rows = list(rows)
        self.finished: list[Heard] = []
        self.begin_us = 0
        self._host, self._port, self._key, self._model = host, port, key, model
        self._tokens, self._space = tokens, space
        self._idle: list[Connection] = []

    async def run(self, timeout_s: float) -> None:
        """Until every request is answered. Raises EngineFailed, also when that takes too long."""
        loop = asyncio.get_running_loop()
        ended = {row.id: loop.create_future() for row in self.rows}
        self.begin_us = now_us()
        try:
            async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
                for row in self.rows:
                    group.create_task(self._request(row, ended))
        except TimeoutError:
            left = len(self.rows) - len(self.finished)
            raise EngineFailed(f"{left} requests unanswered after {timeout_s:.0f} s") from None
        except BaseExceptionGroup as group_of:
            raise group_of.exceptions[0] from None
        finally:
            for connection in self._idle:
                connection.close()

    async def _request(self, row: TraceRow, ended: Mapping[str, "asyncio.Future[None]"]) -> None:
        await asyncio.sleep(max(0, self.begin_us + row.arrival_us - now_us()) / 1e6)
        for parent in row.after:
            await ended[parent]
        body = self._body(row)
        sent_us = now_us()
        answer = await self._answer(row, body)
        assert isinstance(answer, StreamFormat)
        known, said = heard(row, sent_us, answer)
        if row.output is not None:
            self._tokens.learn(row.output, said)
        self.finished.append(known)
        ended[row.id].set_result(None)

    async def _answer(self, row: TraceRow, body: bytes) -> StreamedAnswer:
        """Over an idle connection, unless the engine has hung up on all of them meanwhile."""
        self._idle = [each for each in self._idle if each.is_open]
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            answer = await connection.ask(self._key, body)
        except ConnectionError as error:
            raise EngineFailed(f"{row.id}: {error}") from None
        self._idle.append(connection)
        return answer

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._host, PATH, StreamFormat), self._host, self._port
            )
        except OSError as error:
            raise EngineFailed(f"cannot connect: {error}") from None
        return connection

    def _body(self, row: TraceRow) -> bytes:
        """Exactly as many tokens as the trace says; siblings differ, as at a temperature of 1."""
        body = {
            "model": self._model,
            "prompt": self._tokens.ids(row.prompt),
            "max_tokens": row.output_len,
            "temperature": 1.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "vllm_xargs": {"fair_client": f"{self._space}/{row.client}"},
        }
        return json.dumps(body).encode()


def outcome_of(finished: Iterable[Heard], begin_us: int) -> Outcome:
    """Return the summary and the curves of finished requests, as of a simulated run of a replica."""
    summary, series = Summary(), Series()
    known = sorted(finished, key=lambda each: (each.sent_us, each.row.id))
    for each in known:
        for observer in (summary, series):
            observer.start(each.row.id, each.row.client, each.sent_us - begin_us, each.row.program)
    for event in events_of(known, begin_us):
        summary(event)
        series(event)
    return Outcome(summary=summary.as_dict(), series=list(series.rows()))


def events_of(finished: Sequence[Heard], begin_us: int) -> list[Event]:
    """In order of time; of one instant: come, admitted, tokens, gone."""
    found: list[tuple[int, int, int, Event]] = []
    for number, each in enumerate(finished):
        request, client = each.row.id, each.row.client
        sent_us, first_us = each.sent_us - begin_us, each.pieces[0][0] - begin_us
        extend = each.prompt_len - each.cached_len
        own: list[Event] = [
            Dispatch(sent_us, 0, request, client),
            Enqueue(sent_us, 0, request, client),
            Admit(first_us, 0, request, client, 0, extend, each.prompt_len),
        ]
        for place, (at_us, tokens) in enumerate(each.pieces):
            t_us = at_us - begin_us
            own.append(Decode(t_us, 0, 0, {client: tokens}, 1, t_us * PS_PER_US, 0, 0))
            if not place:
                own.append(FirstToken(t_us, 0, request, client))
        own.append(
            Finish(each.pieces[-1][0] - begin_us, 0, request, client, 0, each.row.output_len)
        )
        found += [(event.t_us, _RANKS[type(event)], number, event) for event in own]
    found.sort(key=lambda each: each[:3])
    return [event for *_, event in found]


_RANKS = {Dispatch: 0, Enqueue: 1, Admit: 2, Decode: 3, FirstToken: 4, Finish: 5}
