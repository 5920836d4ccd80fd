"""The duration of a forward pass: a linear model for tests, a roofline with a knee for GPUs.

Matrix products are cut into tiles, and a GPU computes as many at a time as it has multiprocessors:
one token more may cost a whole wave. Where that matters it is modelled (docs/reference/step-time.md).

Durations are whole picoseconds and the time of a decode pass grows by a whole number of them per
token of context, so that a run of passes in closed form equals stepping to the bit.
"""

import random
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

from fairhit.errors import ConfigError
from fairhit_lab.sim.engines.interface import Pass, StepTime
from fairhit_lab.sim.hardware.models import BYTES, Gpu, TransformerModel, kv_tokens
from fairhit_lab.sim.hardware.tables import BUILT_IN, Constants

PS_PER_S = 10**12
LONGEST_PASS_S = 10**6

# cuBLAS picks its kernels by rules of its own; these two sizes of tile explain the measured passes.
TILE_COLUMNS = 128
TILE_ROWS, FEW_ROWS, FEW_TOKENS = 128, 64, 256

# CPU work per pass that the GPU waits for, in ms: vLLM V1 overlaps most of it, SGLang nearly all.
# Both are assumptions between bounds; LightLLM's 2024 value is measured and part of its GPU's row.
HOST_MS = {"ideal": 0.3, "artifact": 3.5, "vllm": 0.5, "sglang": 0.3}


class EngineTime(StepTime, Protocol):
    """A StepTime that also determines the KV capacity."""

    @property
    def kv_tokens(self) -> int | None:
        """M, the KV capacity in tokens; None if only time is modelled."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """BASE + PER_EXTEND * extend tokens + PER_RUNNING * requests of the pass, the new ones too."""

    pass_base_ps: int
    extend_ps: int
    running_ps: int

    alike = True
    kv_tokens = None

    def pass_ps(self, work: Pass) -> int:
        """The duration of the pass. O(1)."""
        running = work.chunks + work.decodes
        return self.pass_base_ps + self.extend_ps * work.extend_len + self.running_ps * running

    def growth_ps(self, work: Pass) -> int:
        """Return 0: in the linear model a longer context costs no time."""
        return 0


class Roofline:
    """The roofline of one model on one GPU (docs/reference/step-time.md).

    t_mem = bytes of the weights / (BW e_w)
    t_cmp = 2 (P_body n + P_head s) / (F e_f)          n tokens computed, s sequences
    t     = (t_mem^p + t_cmp^p)^(1/p) + context + attention + t0 + g s + t_host
    """

    alike = True

    def __init__(
        self, gpu: Gpu, model: TransformerModel, *, host_ms: float, where: str = "step time"
    ) -> None:
        bandwidth, flops = gpu.bandwidth_gb_s * 1e9, gpu.peak_tflop_s * 1e12
        self.kv_tokens = kv_tokens(gpu, model, where=where)
        self._knee = gpu.p
        self._weights_s = BYTES * (model.body_weights + model.head_weights) / (bandwidth * gpu.e_w)
        self._flops = flops * gpu.e_f
        self._model = model
        self._sms = gpu.sms
        self._sequence_s = 2 * model.head_weights / self._flops
        self.context_ps = round(model.kv_bytes / (bandwidth * gpu.e_kv) * PS_PER_S)
        # `attention` counts pairs of tokens twice; each pair costs 4 FLOP a head dimension.
        width = model.layers * model.heads * model.head_dim
        self.attention_ps = 2 * width / (flops * gpu.e_a) * PS_PER_S
        self._constant_s = (gpu.t0_ms + host_ms) / 1e3
        self._per_sequence_s = (gpu.g_us + gpu.host_us) / 1e6
        self._admit_ps = round(gpu.admit_ms * 1e-3 * PS_PER_S)
        self._weights_ps: dict[tuple[int, int], int] = {}

    def pass_ps(self, work: Pass) -> int:
        """The duration of the pass. O(1), about a microsecond."""
        chunks, decodes = work.chunks, work.decodes
        key = (work.extend_len + decodes, chunks + decodes)
        fixed = self._weights_ps.get(key)
        if fixed is None:
            fixed = self._weights_ps[key] = self._fixed_ps(*key)
        fixed += self.context_ps * work.context
        if chunks:
            fixed += round(self.attention_ps * work.attention)
            if work.admitted:
                fixed += self._admit_ps
        return fixed

    def growth_ps(self, work: Pass) -> int:
        """Return the growth from one decode pass to the next: each sequence reads one more token. O(1)."""
        return self.context_ps * work.decodes

    def _fixed_ps(self, tokens: int, sequences: int) -> int:
        """Return the part of the duration that does not depend on the length of the context."""
        compute = self._body_s(tokens) + self._sequence_s * sequences
        bound = (self._weights_s**self._knee + compute**self._knee) ** (1 / self._knee)
        seconds: float = bound + self._constant_s + self._per_sequence_s * sequences
        return round(seconds * PS_PER_S)

    def _body_s(self, tokens: int) -> float:
        """Return the seconds of the matrix products with all weights but the head's."""
        if self._sms is None:
            return 2 * self._model.body_weights * tokens / self._flops
        rows = FEW_ROWS if tokens <= FEW_TOKENS else TILE_ROWS
        wave = 2 * rows * TILE_COLUMNS * self._sms  # FLOP for each row of the weights
        total = 0
        for columns, depth in self._model.products:
            tiles = -(-tokens // rows) * -(-columns // TILE_COLUMNS)
            total += -(-tiles // self._sms) * depth
        return self._model.layers * wave * total / self._flops


class Jittered:
    """A StepTime that multiplies each pass of `exact` by a normal random factor of mean 1.

    `share` is the factor's standard deviation, cut at three of them. No two passes are alike, so the
    simulator computes each of them.
    """

    alike = False

    def __init__(self, exact: EngineTime, *, share: float, rng: random.Random) -> None:
        assert 0 < share < 1 / 3, share
        self.kv_tokens = exact.kv_tokens
        self._exact = exact
        self._share = share
        self._rng = rng

    def pass_ps(self, work: Pass) -> int:
        """Return the duration of the pass, with a new random factor at every call."""
        spread = min(max(self._rng.gauss(0.0, 1.0), -3.0), 3.0)
        return round(self._exact.pass_ps(work) * (1 + self._share * spread))

    def growth_ps(self, work: Pass) -> int:
        """Return 0; unused, since no two passes are alike."""
        return 0


def parse_step_time(
    text: str,
    *,
    constants: Constants = BUILT_IN,
    engine: str = "ideal",
    jitter: float = 0.0,
    rng: random.Random | None = None,
) -> EngineTime:
    """`linear:BASE,PER_EXTEND,PER_RUNNING` in seconds, or GPU:MODEL.

    `engine` is the host profile, whose CPU time counts where the GPU's row has none of its own.
    `jitter` is a share of each pass, drawn from `rng`. Raises ConfigError.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        raise ConfigError(f"step-time: expected linear:... or GPU:MODEL, got {text!r}")
    exact = _linear(rest) if kind == "linear" else _roofline(kind, rest, constants, engine)
    if not 0 <= jitter < 1 / 3:
        raise ConfigError(f"jitter: expected a share from 0 to 0.33, got {jitter!r}")
    if not jitter:
        return exact
    assert rng is not None, "jitter needs a random generator"
    return Jittered(exact, share=jitter, rng=rng)


def _linear(text: str) -> EngineTime:
    """Parse BASE,PER_EXTEND,PER_RUNNING, in seconds."""
    wrong = ConfigError(
        f"step-time: expected linear:BASE,PER_EXTEND,PER_RUNNING in seconds, got 'linear:{text}'"
    )
    parts = text.split(",")
    if len(parts) != 3:
        raise wrong
    try:
        seconds = [Decimal(part) for part in parts]
    except InvalidOperation:
        raise wrong from None
    if not all(part.is_finite() and 0 <= part <= LONGEST_PASS_S for part in seconds):
        raise wrong
    if not any(seconds):
        raise ConfigError("step-time: a pass must take time, got 'linear:" + text + "'")
    pass_base, extend, running = (int((part * PS_PER_S).to_integral_value()) for part in seconds)
    return Linear(pass_base_ps=pass_base, extend_ps=extend, running_ps=running)


def _roofline(gpu: str, model: str, constants: Constants, engine: str) -> EngineTime:
    """Look up the GPU and the model."""
    for kind, name, table in (("GPU", gpu, constants.gpus), ("model", model, constants.models)):
        if name not in table:
            known = ", ".join(sorted(table))
            raise ConfigError(f"step-time: unknown {kind} {name!r}; known are {known}")
    row = constants.gpus[gpu]
    host_ms = HOST_MS[engine] if row.host_ms is None else row.host_ms
    return Roofline(row, constants.models[model], host_ms=host_ms, where=f"{gpu}:{model}")
