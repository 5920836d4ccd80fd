"""Models and GPUs for the step-time model: shapes, speeds, and the KV tokens that fit.

Sizes are of fp16 weights and KV. The constants of a GPU are fitted to measured passes, or estimated
where that is said: docs/reference/step-time.md has the data, the quality and the sources.
"""

from dataclasses import dataclass

from fairhit.errors import ConfigError

BYTES = 2  # of one weight, and of one element of the KV cache: fp16
GIB = 2**30
# Of a GPU's memory, for weights and KV together; the rest is for activations (SGLang's default).
STATIC_FRACTION = 0.88


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerModel:
    """A decoder-only transformer with gated MLPs; counts of weights, no bytes."""

    layers: int
    d: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied_head: bool = False

    @property
    def body_weights(self) -> int:
        """P_body: weights used once per token."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.layers * (self.d * (q + 2 * kv) + q * self.d + 3 * self.d * self.ffn)

    @property
    def products(self) -> list[tuple[int, int]]:
        """The matrix products of one layer: (columns of the weights, their rows)."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(q, self.d), (kv, self.d), (kv, self.d), (self.d, q)]
        return [*attention, (self.ffn, self.d), (self.ffn, self.d), (self.d, self.ffn)]

    @property
    def head_weights(self) -> int:
        """P_head: weights used once per sequence, to sample from."""
        return self.d * self.vocab

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory, with the embedding unless it is tied to the head."""
        return BYTES * (self.body_weights + self.head_weights * (1 if self.tied_head else 2))

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU's memory and peak rates, and the shares of them that an engine's kernels reach.

    `e_w`, `e_f`, `e_kv`, `e_a` are shares of bandwidth (weights, KV) and of compute (weights,
    attention); `t0_ms` per pass and `g_us` per sequence are launches and sampling; `p` is the knee.
    With `sms`, the number of its multiprocessors, matrix products take whole waves of tiles; without,
    their time is a straight line. `host_ms` per pass and `host_us` per sequence are CPU work that the
    GPU waits for, `admit_ms` more of it in a pass that admits; `host_ms` None: the simulated engine's.
    """

    memory_gib: float
    bandwidth_gb_s: float
    peak_tflop_s: float
    e_w: float
    e_f: float
    e_kv: float
    e_a: float
    t0_ms: float
    g_us: float
    p: float
    sms: int | None = None
    host_ms: float | None = None
    host_us: float = 0.0
    admit_ms: float = 0.0


MODELS = {
    "llama-2-7b": TransformerModel(
        layers=32, d=4096, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000
    ),
    "llama-2-13b": TransformerModel(
        layers=40, d=5120, heads=40, kv_heads=40, head_dim=128, ffn=13824, vocab=32000
    ),
    "llama-3.1-8b": TransformerModel(
        layers=32, d=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256
    ),
    "llama-3.2-3b": TransformerModel(
        layers=28, d=3072, heads=24, kv_heads=8, head_dim=128, ffn=8192, vocab=128256,
        tied_head=True,
    ),
}  # fmt: skip

GPUS = {
    # LightLLM as the VTC artifact has it: kernels of 2023, a Python loop.
    "a10g-2024": Gpu(
        memory_gib=22.49, bandwidth_gb_s=600, peak_tflop_s=70, sms=80,
        e_w=0.868, e_f=0.887, e_kv=0.948, e_a=0.688, t0_ms=0, g_us=50, p=15,
        host_ms=0.45, host_us=64, admit_ms=15.6,
    ),
    "a100-2024": Gpu(
        memory_gib=79.25, bandwidth_gb_s=2039, peak_tflop_s=312, sms=108,
        e_w=0.761, e_f=0.795, e_kv=0.765, e_a=0.655, t0_ms=5.8, g_us=0, p=15,
        host_ms=0.45, host_us=64, admit_ms=15.6,
    ),
    "a10g": Gpu(  # a current engine: an estimate
        memory_gib=22.49, bandwidth_gb_s=600, peak_tflop_s=70,
        e_w=0.82, e_f=0.86, e_kv=0.75, e_a=0.60, t0_ms=1.0, g_us=4, p=2.3,
    ),
    "rtx4090": Gpu(
        memory_gib=23.52, bandwidth_gb_s=1008, peak_tflop_s=165,
        e_w=0.851, e_f=0.973, e_kv=0.925, e_a=0.766, t0_ms=0.01, g_us=4.0, p=2.1,
    ),
    "l40s": Gpu(
        memory_gib=44.99, bandwidth_gb_s=864, peak_tflop_s=362,
        e_w=0.791, e_f=0.513, e_kv=0.758, e_a=0.450, t0_ms=0.77, g_us=1.3, p=1.8,
    ),
    "a100": Gpu(
        memory_gib=79.25, bandwidth_gb_s=2039, peak_tflop_s=312,
        e_w=0.761, e_f=0.725, e_kv=0.501, e_a=0.655, t0_ms=2.02, g_us=0.1, p=2.3,
    ),
    "h100": Gpu(
        memory_gib=79.65, bandwidth_gb_s=3350, peak_tflop_s=989,
        e_w=0.807, e_f=0.671, e_kv=0.897, e_a=0.551, t0_ms=0.99, g_us=2.7, p=2.2,
    ),
    "h200": Gpu(
        memory_gib=140.4, bandwidth_gb_s=4800, peak_tflop_s=989,
        e_w=0.768, e_f=0.662, e_kv=0.887, e_a=0.546, t0_ms=0.97, g_us=3.0, p=2.2,
    ),
}  # fmt: skip


def kv_tokens(gpu: Gpu, model: TransformerModel, *, where: str) -> int:
    """Return how many tokens of KV fit beside the weights. Raises ConfigError if the weights do not fit."""
    free = STATIC_FRACTION * gpu.memory_gib * GIB - model.weight_bytes
    tokens = int(free // model.kv_bytes)
    if tokens < 1:
        need, has = model.weight_bytes / GIB, STATIC_FRACTION * gpu.memory_gib
        raise ConfigError(f"{where}: the weights do not fit: {need:.1f} GiB of {has:.1f} GiB")
    return tokens
