"""The VTC artifact: its trace of Chatbot Arena (CSV or its own pickle) and its measured runs (CSV).

CSV columns `t_s,client,input_tokens,output_tokens`; a file of measured runs has `workload,scheduler` in
front, and one of each has to be chosen. Prompts share nothing: that server has no prefix cache.
"""

import pickle
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from fairhit.errors import ConfigError, in_words
from fairhit_lab.traces.fields import MICROSECONDS, WrongField, whole
from fairhit_lab.traces.importers.format import Cells, Format, cells, lengths_only, rising
from fairhit_lab.traces.parameters import Word
from fairhit_lab.traces.rows import merged
from fairhit_lab.traces.trace import TraceRow

COLUMNS = ("t_s", "client", "input_tokens", "output_tokens")


class _Request:
    """Stands in for the artifact's `trace.Request`: a bag of attributes."""


class _Unpickler(pickle.Unpickler):
    """Reads that one class and builtin containers; a pickle that asks for anything else runs nothing."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) == ("trace", "Request"):
            return _Request
        raise pickle.UnpicklingError(f"expected only trace.Request, got {module}.{name}")


def _pickled(path: str) -> Iterator[TraceRow]:
    try:
        with open(path, "rb") as file:
            _, requests = _Unpickler(file).load()
        found = sorted(((one.req_time, one) for one in requests), key=lambda pair: pair[0])
    except OSError as error:
        raise ConfigError(in_words(error)) from None
    except Exception as error:  # noqa: BLE001 - a broken pickle raises anything
        raise ConfigError(f"{path}: expected the artifact's real_trace.pkl: {error}") from None
    adapters: dict[str, str] = {}
    for n, (at_s, one) in enumerate(found):
        try:
            if not isinstance(at_s, float | int) or not 0 <= at_s < 10**9:
                raise WrongField("req_time", "seconds", at_s)
            yield lengths_only(
                f"r{n}",
                client=adapters.setdefault(str(one.adapter_dir), f"c{len(adapters)}"),
                at_us=round(at_s * MICROSECONDS),
                input_len=whole(one.prompt_len, "prompt_len", least=1),
                output_len=whole(one.output_len, "output_len", least=1),
            )
        except (AttributeError, ConfigError) as error:
            raise ConfigError(f"{path}: request {n}: {error}") from None


def _csv(path: str, chosen: dict[str, str]) -> Iterator[tuple[Cells, TraceRow]]:
    seen: dict[str, dict[str, None]] = {column: {} for column in chosen}
    count = 0
    for place in cells(path, COLUMNS):
        kept = True
        for column, wanted in chosen.items():
            value = place.values.get(column, "")
            seen[column][value] = None
            if not wanted and len(seen[column]) > 1:
                raise ConfigError(
                    f"{path}:{place.line}: several values of {column}: choose with --set {column}=VALUE"
                )
            kept = kept and wanted in {"", value}
        if kept:
            yield (
                place,
                lengths_only(
                    f"r{count}",
                    client=f"c{place.whole('client')}",
                    at_us=place.us("t_s"),
                    input_len=place.whole("input_tokens", least=1),
                    output_len=place.whole("output_tokens", least=1),
                ),
            )
            count += 1
    for column, wanted in chosen.items():
        if wanted and wanted not in seen[column]:
            raise ConfigError(
                f"{path}: --set {column}: expected one of {', '.join(seen[column])}, got {wanted}"
            )


def vtc(
    paths: Sequence[str], _: Random, *, workload: Word = "", scheduler: Word = ""
) -> Iterator[TraceRow]:
    """Read one file: CSV, or the artifact's pickle, of which no code is run."""
    if len(paths) != 1:
        raise ConfigError(f"expected one file, got {len(paths)}")
    if paths[0].endswith((".pkl", ".pickle")):
        return _pickled(paths[0])
    chosen = {"workload": workload, "scheduler": scheduler}
    return merged([rising(_csv(paths[0], chosen))])


VTC = Format(
    summary="arena trace or measured runs of the VTC artifact",
    source="Ying1123/VTC-artifact",
    read=vtc,
)
