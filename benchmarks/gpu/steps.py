"""Times of forward passes on this GPU: random weights of a model's shape, prefills and decodes.

    python -m benchmarks.gpu.steps --model llama-3.1-8b --out passes.csv [--gpu h100 [--add gpus.yaml]]

Writes the CSV that `fairhit experiment calibrate` reads, fits the seven constants, prints their row
and adds it to a file of constants, with hardware and date. Caveat first: plain PyTorch, replayed as a
CUDA graph; an engine's kernels are somewhat faster or slower, its scheduling comes on top.
`--device cpu` with a toy `--model` tests the script, not the machine.
"""

import argparse
import csv
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from benchmarks.gpu.constants_file import add_row, require_addable
from benchmarks.gpu.decoder import Decoder
from fairhit.cli.parser import OneLineParser
from fairhit.errors import ConfigError, in_words
from fairhit_lab.calibration.measured_passes import COLUMNS
from fairhit_lab.sim.hardware.models import GPUS, MODELS, TransformerModel
from fairhit_lab.sim.hardware.tables import read_constants

# No model of anybody's: it tests the script.
TOY = TransformerModel(layers=2, d=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=256)
SHAPES = {**MODELS, "toy": TOY}

PREFILL_BATCHES = (1, 2, 4, 8)
PREFILL_TOKENS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
CACHED_PREFIXES = (0, 512, 2048, 8192)
DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DECODE_CONTEXTS = (16, 256, 1024, 4096, 16384)
# Of one pass: beyond, engines cut prompts into chunks.
MOST_PREFILLED = 16_384
# Of the memory, for weights and KV together; the rest is for what a pass holds meanwhile.
FILLED = 0.7
WARM_UPS, REPEATS = 3, 9
EXTRA = ("seconds_low", "seconds_high", "repeats", "model", "device", "torch", "date")


class Case(NamedTuple):
    """`batch` sequences compute `tokens` each behind `context` each (a decode: 1)."""

    phase: str
    batch: int
    tokens: int
    context: int

    @property
    def kv_tokens(self) -> int:
        """Return the cache size that the pass needs."""
        return self.batch * (self.tokens + self.context)


def grid(most_kv_tokens: int, divisor: int = 1) -> Iterator[Case]:
    """Return all passes that fit; lengths divided, for tests."""
    for context in CACHED_PREFIXES:
        for tokens in PREFILL_TOKENS:
            for batch in PREFILL_BATCHES:
                case = Case("prefill", batch, max(tokens // divisor, 1), context // divisor)
                fits = case.kv_tokens <= most_kv_tokens and batch * tokens <= MOST_PREFILLED
                if fits and (tokens % divisor == 0):
                    yield case
    for context in DECODE_CONTEXTS:
        for batch in DECODE_BATCHES:
            case = Case("decode", batch, 1, context // divisor)
            if case.kv_tokens <= most_kv_tokens:
                yield case


def kv_room(shape: TransformerModel, device: str, divisor: int) -> int:
    """Tokens of KV that fit beside the weights."""
    if device == "cpu":
        return 65_536 // divisor
    total = torch.cuda.get_device_properties(device).total_memory
    room = int((FILLED * total - shape.weight_bytes) / shape.kv_bytes)
    if room < MOST_PREFILLED:
        raise SystemExit(f"steps: {total / 2**30:.0f} GiB are too few for these weights")
    return room


def measure(decoder: Decoder, case: Case, device: str, repeats: int) -> list[float]:
    """Seconds of each repetition; the host only starts it and waits."""
    size = (case.batch, case.tokens)
    tokens = torch.randint(decoder.shape.vocab, size, device=device)

    def step() -> None:
        decoder.forward(tokens, case.context).argmax(dim=-1)

    for _ in range(WARM_UPS):
        step()
    if device == "cpu":
        return [_wall_s(step) for _ in range(repeats)]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    return [_event_s(graph.replay) for _ in range(repeats)]


def _wall_s(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _event_s(step: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def decoder_for(
    shape: TransformerModel, cases: Sequence[Case], device: str
) -> Iterator[tuple[Decoder, Case]]:
    """Yield each case with a decoder whose cache it fits: the same decoder, its cache reshaped if needed."""
    dtype = torch.float32 if device == "cpu" else torch.float16
    decoder = Decoder(shape, room=1, length=1, device=device, dtype=dtype)
    for case in cases:
        decoder.resize(room=case.batch, length=case.tokens + case.context)
        yield decoder, case


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write, fit, print, add. Exit status: 2 if the command was wrong, in one line."""
    options = parse(argv)
    hardware = "cpu" if options.device == "cpu" else torch.cuda.get_device_name(options.device)
    name = options.name or re.sub(r"[^a-z0-9]+", "-", hardware.lower()).strip("-")
    try:
        if options.add:
            require_addable(options.add, name)
        measure_all(options, hardware)
        about = f"{hardware}, torch {torch.__version__}, {options.model} shape, random weights, {today()}"
        print(f"# {about}")
        return fit(options, name, about)
    except ConfigError as error:
        print(f"steps: {error}", file=sys.stderr)
        return 2


def measure_all(options: argparse.Namespace, hardware: str) -> None:
    """Every pass of the grid, a line each. Raises ConfigError if the file cannot be made."""
    cases = list(
        grid(kv_room(SHAPES[options.model], options.device, options.divisor), options.divisor)
    )
    about = (options.repeats, options.model, hardware, torch.__version__, today())
    try:
        made = options.out.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {in_words(error)}") from None
    with made as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow((*COLUMNS, *EXTRA))
        decoders = decoder_for(SHAPES[options.model], cases, options.device)
        for number, (decoder, case) in enumerate(decoders, 1):
            seconds = measure(decoder, case, options.device, options.repeats)
            middle, low, high = statistics.median(seconds), min(seconds), max(seconds)
            table.writerow((*case, *(f"{each:.6g}" for each in (middle, low, high)), *about))
            # After an interruption the measured passes are kept.
            file.flush()
            print(f"{number}/{len(cases)} {' '.join(map(str, case))}: {middle * 1e3:.3f} ms")


def today() -> str:
    """In UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def fit(options: argparse.Namespace, name: str, about: str) -> int:
    """As `fairhit experiment calibrate`; a toy is fitted as a small real model, for the way there."""
    if options.gpu is None:
        print("steps: no --gpu to begin the fit with; the CSV is there")
        return 0
    from rich.console import Console

    from fairhit_lab.calibration import calibrate

    model = options.model if options.model in MODELS else "llama-3.2-3b"
    parser = OneLineParser()
    calibrate.add_arguments(parser)
    with TemporaryDirectory() as folder:
        fitted = Path(folder) / "fitted.yaml"
        arguments = [str(options.out), "--model", model, "--gpu", options.gpu, "--out", str(fitted)]
        status = calibrate.run(parser.parse_args(arguments), Console())
        if options.add:
            add_row(options.add, name, read_constants(fitted).gpus[options.gpu], about)
            print(f"{options.add}: {name}")
    return status


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = OneLineParser(prog="benchmarks.gpu.steps")
    parser.add_argument("--model", choices=sorted(SHAPES), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="CSV")
    parser.add_argument(
        "--gpu", choices=sorted(GPUS), help="whose memory, bandwidth and peak it is; none: no fit"
    )
    parser.add_argument(
        "--add", type=Path, metavar="YAML", help="constants that the row is added to; wants --gpu"
    )
    parser.add_argument("--name", help="of the row there (what CUDA calls the GPU)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--divisor", type=int, default=1, help="shorter by that much, for tests")
    options = parser.parse_args(argv)
    if options.add and not options.gpu:
        parser.error("--add: expected --gpu, too: without it there is no row")
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error("no CUDA device here; --device cpu --model toy tries the script")
    return options


if __name__ == "__main__":
    sys.exit(main())
