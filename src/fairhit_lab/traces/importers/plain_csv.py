"""Any CSV file with a header: `client,arrival,input,output`, and what else it may have.

Also read where present: `id`, `max_tokens`, `program`, `weight`, and `prefix,prefix_len`: the prompt's first
`prefix_len` tokens are those of the segment `prefix`, shared by all that name it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fairhit.errors import ConfigError
from fairhit_lab.traces import fields
from fairhit_lab.traces.importers.format import Cells, Format, cells, lengths_only, rising
from fairhit_lab.traces.parameters import Switch
from fairhit_lab.traces.rows import merged, runs
from fairhit_lab.traces.trace import TraceRow

COLUMNS = ("client", "arrival", "input", "output")


def _row(place: Cells, name: str) -> TraceRow:
    row = lengths_only(
        place.name("id") if "id" in place else name,
        client=place.name("client"),
        at_us=place.us("arrival"),
        input_len=place.whole("input", least=1),
        output_len=place.whole("output", least=1),
    )
    more: dict[str, Any] = {}
    if "max_tokens" in place:
        more["max_tokens"] = place.whole("max_tokens", least=row.output_len)
    if "program" in place:
        more["program"] = place.name("program")
    if "weight" in place:
        try:
            more["weight"] = fields.weight(fields.number(place.values["weight"]))
        except ConfigError as error:
            raise place.at(error) from None
    if "prefix" in place:
        shared, length = place.whole("prefix_len"), len(row.prompt)
        if shared > length:
            place.wrong("prefix_len", f"at most input = {length}")
        more["prompt"] = runs(
            [(f"prefix:{place.name('prefix')}", shared), (row.id, length - shared)]
        )
    return replace(row, **more)


def _rows(path: str, file: int) -> Iterator[tuple[Cells, TraceRow]]:
    for n, place in enumerate(cells(path, COLUMNS)):
        if "prefix" in place and "prefix_len" not in place:
            raise place.at(
                ConfigError('field "prefix_len": expected a length beside prefix, got none')
            )
        yield place, _row(place, f"f{file}:{n}")


def plain_csv(paths: Sequence[str], _: Random, *, sort: Switch = False) -> Iterator[TraceRow]:
    """Read files whose times share one clock; `sort` accepts lines in any order but keeps all in memory."""
    if sort:
        found = [row for n, path in enumerate(paths) for _, row in _rows(path, n)]
        return iter(sorted(found, key=lambda row: row.arrival_us))
    return merged(rising(_rows(path, n)) for n, path in enumerate(paths))


PLAIN_CSV = Format(
    summary="client,arrival,input,output[,prefix,prefix_len,...] with a header",
    source="",
    read=plain_csv,
)
