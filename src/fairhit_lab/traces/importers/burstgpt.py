"""BurstGPT: requests of one region's ChatGPT and GPT-4 over months; lengths and times only."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Annotated

from fairhit.settings.kinds import one_of
from fairhit_lab.traces.importers.format import Cells, Format, cells, lengths_only, rising
from fairhit_lab.traces.rows import merged
from fairhit_lab.traces.trace import TraceRow

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Log Type")
# What names the client, as columns. A session exists in the later files only.
CLIENTS = {
    "model": ("Model",),
    "log": ("Log Type",),
    "both": ("Model", "Log Type"),
    "session": ("Session ID",),
}
By = Annotated[str, one_of(*CLIENTS)]
Failures = Annotated[str, one_of("drop", "one")]


def _rows(path: str, file: int, by: str, failures: str) -> Iterator[tuple[Cells, TraceRow]]:
    wanted = (*COLUMNS, *CLIENTS[by])
    for n, place in enumerate(cells(path, tuple(dict.fromkeys(wanted)))):
        output_len = place.whole("Response tokens")
        if not output_len and failures == "drop":
            continue
        yield (
            place,
            lengths_only(
                f"f{file}:{n}",
                client=" ".join(place.name(column) for column in CLIENTS[by]),
                at_us=place.us("Timestamp"),
                input_len=place.whole("Request tokens", least=1),
                output_len=max(output_len, 1),
            ),
        )


def burstgpt(
    paths: Sequence[str], _: Random, *, client: By = "model", failures: Failures = "drop"
) -> Iterator[TraceRow]:
    """Any number of files on one clock; failed requests (no response) are dropped or emit one token."""
    return merged(rising(_rows(path, n, client, failures)) for n, path in enumerate(paths))


BURSTGPT = Format(
    summary="BurstGPT CSV; the model, log type or session is the client",
    source="HPMLL/BurstGPT",
    read=burstgpt,
)
