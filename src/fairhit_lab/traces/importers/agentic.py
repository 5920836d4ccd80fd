"""Sessions of coding agents: one line a session, block ids local to it, sub-agents as further streams.

A session is a client, or several share one. Sessions start by a Poisson process; inside one, a request
comes at its recorded time, and not before the one before it in its stream has finished.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Annotated, Any

from fairhit.errors import ConfigError
from fairhit.settings.kinds import whole
from fairhit_lab.traces import arrivals, fields
from fairhit_lab.traces.blocks import Blocks
from fairhit_lab.traces.fields import WrongField
from fairhit_lab.traces.files import lines
from fairhit_lab.traces.importers.format import Format
from fairhit_lab.traces.parameters import Count, Natural, Positive
from fairhit_lab.traces.rows import Piece, in_order, row
from fairhit_lab.traces.trace import TraceRow

Scale = Annotated[int, whole(1, 64)]
REQUEST = "[stream, t_s, input_tokens, output_tokens, api_s, think_s, keep, [[first, count], ...]]"


class _Request:
    """A request of a session, checked."""

    __slots__ = ("at_us", "ids", "input_len", "output_len", "stream")

    def __init__(self, item: list[Any], before: dict[int, list[int]], field: str) -> None:
        if type(item) is not list or len(item) != 8 or type(item[7]) is not list:
            raise WrongField(field, REQUEST, item)
        self.stream = fields.whole(item[0], f"{field}[0]")
        self.at_us = fields.microseconds(item[1], f"{field}[1]")
        self.input_len = fields.whole(item[2], f"{field}[2]", least=1)
        self.output_len = fields.whole(item[3], f"{field}[3]")
        last = before.get(self.stream, [])
        keep = fields.whole(item[6], f"{field}[6]", most=len(last))
        self.ids = last[:keep]
        for part in item[7]:
            if type(part) is not list or set(map(type, part)) != {int} or len(part) != 2:
                raise WrongField(f"{field}[7]", "[first, count] pairs", part)
            if not 0 <= part[1] <= 10**6:
                raise WrongField(f"{field}[7]", "a count from 0 to 1000000", part)
            self.ids.extend(range(part[0], part[0] + part[1]))
        before[self.stream] = self.ids


def _session(record: dict[str, Any]) -> tuple[str, int, list[_Request]]:
    for name in ("session", "block_size", "requests"):
        if name not in record:
            raise ConfigError(f'field "{name}": expected a value, got no such field')
    if type(record["requests"]) is not list:
        raise WrongField("requests", "a list", record["requests"])
    before: dict[int, list[int]] = {}
    found = [
        _Request(item, before, f"requests[{at}]") for at, item in enumerate(record["requests"])
    ]
    size = fields.whole(record["block_size"], "block_size", least=64, most=10**6)
    return fields.name(record["session"], "session"), size, found


def _prompts(name: str, size: int, scale: int, found: list[_Request]) -> Iterator[list[Piece]]:
    """Full blocks have ids; the tokens behind them are a request's own."""
    blocks = Blocks(f"{name}:", size=size, scale=scale)
    for at, one in enumerate(found):
        full = one.input_len // size * size
        try:
            pieces = blocks.pieces(one.ids, full) if full or one.ids else []
        except WrongField as error:
            raise ConfigError(f"request {at}: {error}") from None
        rest = max(1, one.input_len // scale) - sum(length for _, length in pieces)
        yield [*pieces, (f"{name}:{at}", rest)] if rest else pieces


def _rows(
    name: str,
    found: list[_Request],
    prompts: list[list[Piece]],
    *,
    client: str,
    start_s: float,
    scale: int,
) -> list[TraceRow]:
    """By time; sub-agents stand in the file where they were started."""
    last: dict[int, str] = {}
    made = []
    order = sorted(range(len(found)), key=lambda at: found[at].at_us)
    for at in order:
        one = found[at]
        parent = last.get(one.stream)
        made.append(
            row(
                f"{name}:{at}",
                client=client,
                at_s=start_s + one.at_us / fields.MICROSECONDS,
                prompt=prompts[at],
                output_len=max(1, one.output_len // scale),
                program=name,
                after=(parent,) if parent else (),
            )
        )
        last[one.stream] = f"{name}:{at}"
    return made


def agentic(
    paths: Sequence[str],
    rng: Random,
    *,
    rate: Positive = 0.05,
    scale: Scale = 1,
    sessions: Natural = 0,
    per_client: Count = 1,
) -> Iterator[TraceRow]:
    """Any number of files; `rate` sessions start a second.

    `scale` divides lengths; only the first `sessions` are read (0: all); `per_client` sessions in a
    row belong to one client.
    """

    def programs() -> Iterator[tuple[float, list[TraceRow]]]:
        starts = arrivals.gamma(rng, per_s=rate)
        numbered = ((path, number, line) for path in paths for number, line in lines(path))
        for n, (path, number, line) in enumerate(islice(numbered, sessions or None)):
            try:
                name, size, found = _session(fields.parse_object(line))
                prompts = list(_prompts(name, size, scale, found))
            except ConfigError as error:
                raise ConfigError(f"{path}:{number}: {error}") from None
            client = name if per_client == 1 else f"c{n // per_client}"
            start_s = next(starts)
            yield start_s, _rows(name, found, prompts, client=client, start_s=start_s, scale=scale)

    return in_order(programs())


AGENTIC = Format(
    summary="sessions of coding agents in 64-token blocks",
    source="callanjfox/kv-cache-tester",
    read=agentic,
)
