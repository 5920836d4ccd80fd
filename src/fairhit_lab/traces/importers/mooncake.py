"""Mooncake: `timestamp` in ms, lengths and the prompt's blocks of 512 tokens; equal ids are equal prefixes.

A request belongs to a conversation, named by its first or second block; conversations are spread
over so many clients. Times stand on a grid in the conversation trace: `spread` scatters each inside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any
from zlib import crc32

from fairhit.errors import ConfigError
from fairhit.settings.kinds import one_of, whole
from fairhit_lab.traces import fields
from fairhit_lab.traces.blocks import Blocks
from fairhit_lab.traces.fields import WrongField
from fairhit_lab.traces.files import lines
from fairhit_lab.traces.importers.format import Format
from fairhit_lab.traces.parameters import Amount, Count, Natural, Positives, of
from fairhit_lab.traces.rows import Piece, in_order, row
from fairhit_lab.traces.trace import TraceRow

BLOCK = 512
By = Annotated[str, one_of("first", "second")]
Scale = Annotated[int, whole(1, BLOCK)]


@dataclass(frozen=True, slots=True)
class _Line:
    at_ms: int
    input_len: int
    output_len: int
    ids: list[int]


def _parsed(record: dict[str, Any]) -> _Line:
    for name in ("timestamp", "input_length", "output_length", "hash_ids"):
        if name not in record:
            raise ConfigError(f'field "{name}": expected a value, got no such field')
    ids = record["hash_ids"]
    if type(ids) is not list or set(map(type, ids)) != {int}:
        raise WrongField("hash_ids", "a list of block numbers", ids)
    return _Line(
        fields.whole(record["timestamp"], "timestamp", most=10**13),
        fields.whole(record["input_length"], "input_length", least=1),
        fields.whole(record["output_length"], "output_length"),
        ids,
    )


def mooncake(
    paths: Sequence[str],
    rng: Random,
    *,
    clients: Natural = 4,
    program: By = "second",
    keep: Positives = (1.0,),
    scale: Scale = 1,
    spread: Amount = 0,
    slowdown: Count = 1,
) -> Iterator[TraceRow]:
    """Read one file; `clients` 0 makes each conversation a client of its own.

    `keep` is each client's share of conversations that stay, `scale` divides lengths, `spread` is
    in seconds, `slowdown` multiplies times.
    """
    if len(paths) != 1:
        raise ConfigError(f"expected one file, got {len(paths)}")

    def programs() -> Iterator[tuple[float, list[TraceRow]]]:
        """Rows of a program, with the earliest time that any later one may have."""
        for number, one, prompt in _prompts(paths[0], Blocks("m", size=BLOCK, scale=scale)):
            due_s = one.at_ms / 1000 * slowdown
            at_s = due_s + rng.random() * spread if spread else due_s
            named = one.ids[min(1, len(one.ids) - 1) if program == "second" else 0]
            client, stays = _client(named, clients, keep)
            if stays:
                made = row(
                    f"r{number}",
                    client=client,
                    at_s=at_s,
                    prompt=prompt,
                    output_len=max(1, one.output_len // scale),
                    program=f"m{named}",
                )
                yield due_s, [made]

    return in_order(programs())


def _prompts(path: str, blocks: Blocks) -> Iterator[tuple[int, _Line, list[Piece]]]:
    last_ms = 0
    for number, line in lines(path):
        try:
            one = _parsed(fields.parse_object(line))
            if one.at_ms < last_ms:
                raise WrongField("timestamp", f"lines sorted by time, {last_ms} or more", one.at_ms)
            last_ms = one.at_ms
            yield number, one, blocks.pieces(one.ids, one.input_len)
        except ConfigError as error:
            raise ConfigError(f"{path}:{number}: {error}") from None


def _client(named: int, clients: int, keep: Positives) -> tuple[str, bool]:
    """Client of a conversation, and whether it is kept; both by a hash, so no state."""
    drawn = crc32(str(named).encode())
    if not clients:
        return f"m{named}", drawn / 2**32 < keep[0]
    number = drawn % clients
    return f"c{number}", (drawn // clients) / (2**32 // clients) < of(keep, number)


MOONCAKE = Format(
    summary="Mooncake JSONL with 512-token blocks", source="kvcache-ai/Mooncake", read=mooncake
)
