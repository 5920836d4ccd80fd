"""The Azure LLM inference traces: one file a service, one service a client; lengths and times only.

Columns `TIMESTAMP,ContextTokens,GeneratedTokens` as published, or `t_s,input_tokens,output_tokens`.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from fairhit.errors import ConfigError
from fairhit_lab.traces.importers.format import Cells, Format, cells, lengths_only, rising
from fairhit_lab.traces.rows import merged
from fairhit_lab.traces.trace import TraceRow

PUBLISHED = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
CONVERTED = ("t_s", "input_tokens", "output_tokens")
MICROSECOND = timedelta(microseconds=1)


def _time(place: Cells) -> datetime:
    try:
        return datetime.fromisoformat(place.values["TIMESTAMP"]).replace(tzinfo=None)
    except ValueError:
        place.wrong("TIMESTAMP", "a date and time like 2023-11-16 18:15:46.680590")
        raise


def _rows(path: str, client: str, origin: datetime | None) -> Iterator[tuple[Cells, TraceRow]]:
    for n, place in enumerate(cells(path, PUBLISHED, CONVERTED)):
        published = "TIMESTAMP" in place.values
        columns = PUBLISHED if published else CONVERTED
        if published and origin is not None:
            at_us = (_time(place) - origin) // MICROSECOND
        else:
            at_us = place.us("t_s")
        yield (
            place,
            lengths_only(
                f"{client}:{n}",
                client=client,
                at_us=at_us,
                input_len=place.whole(columns[1], least=1),
                output_len=place.whole(columns[2], least=1),
            ),
        )


def _origin(paths: Sequence[str]) -> datetime | None:
    """The earliest first line of published files; None where the times are seconds already."""
    firsts = [next(cells(path, PUBLISHED, CONVERTED), None) for path in paths]
    published = [place for place in firsts if place is not None and "TIMESTAMP" in place.values]
    if published and len(published) != len([place for place in firsts if place is not None]):
        raise ConfigError(f"expected one kind of columns in all of {', '.join(paths)}")
    return min(map(_time, published), default=None)


def azure(paths: Sequence[str], _: Random) -> Iterator[TraceRow]:
    """Any number of files; a client is called after its file. Published times count from the earliest."""
    clients = [Path(path).name.partition(".")[0] for path in paths]
    if len(set(clients)) != len(clients):
        raise ConfigError(f"expected files of different names, got {', '.join(paths)}")
    origin = _origin(paths)
    files = zip(paths, clients, strict=True)
    return merged([rising(_rows(path, client, origin)) for path, client in files])


AZURE = Format(
    summary="Azure conversation and code services: lengths and times",
    source="Azure/AzurePublicDataset",
    read=azure,
)
