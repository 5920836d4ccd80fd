"""How long passes last: the roofline, the straight line, jitter, and a user's own constants."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.request import Request
from fairhit.errors import ConfigError
from fairhit_lab.events import after
from fairhit_lab.sim.engines.interface import AdmittedJob, EngineJob, Pass
from fairhit_lab.sim.hardware.models import GPUS, MODELS
from fairhit_lab.sim.hardware.step_time import PS_PER_S, EngineTime, parse_step_time
from fairhit_lab.sim.hardware.tables import read_constants
from fairhit_lab.traces.rows import runs
from fairhit_lab.traces.trace import TraceRow

MS = 10**9  # picoseconds
NAMES = [
    f"{gpu}:{model}"
    for gpu in GPUS
    for model in MODELS
    if not (model == "llama-2-13b" and ("a10g" in gpu or gpu == "rtx4090"))
]


def decoding(batch: int, context: int) -> Pass:
    return Pass(decodes=batch, context=context)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(batch=st.integers(1, 1000), length=st.integers(1, 30_000), passes=st.integers(1, 5000))
def test_a_run_of_decode_passes_in_closed_form_equals_stepping(name, batch, length, passes):
    """Skipping is only worth something if it cannot be seen: equal to the picosecond."""
    step_time = parse_step_time(name)
    first = decoding(batch, batch * length)

    stepped = sum(
        step_time.pass_ps(decoding(batch, first.context + j * batch)) for j in range(passes)
    )

    assert stepped == after(passes, step_time.pass_ps(first), step_time.growth_ps(first))


@pytest.mark.parametrize("name", NAMES)
def test_more_work_never_takes_less_time(name):
    step_time = parse_step_time(name)
    times = [step_time.pass_ps(decoding(batch, batch * 500)) for batch in range(1, 400)]
    prefills = [
        step_time.pass_ps(Pass(chunks=1, extend_len=q, attention=q * q)) for q in range(1, 9000, 50)
    ]

    assert times == sorted(times)
    assert prefills == sorted(prefills)


def test_each_term_of_the_formula_by_hand():
    """Llama-3.2-3B on an H200, a batch of 32 with 1,000 tokens each, computed the long way."""
    body = 28 * (3072 * (3072 + 2 * 1024) + 3072 * 3072 + 3 * 3072 * 8192)
    head = 3072 * 128_256
    memory = 2 * (body + head) / (4800e9 * 0.768)
    compute = 2 * (body + head) * 32 / (989e12 * 0.662)
    context = 32_000 * 2 * 28 * 8 * 128 * 2 / (4800e9 * 0.887)
    seconds = (memory**2.2 + compute**2.2) ** (1 / 2.2) + context + 0.97e-3 + 32 * 3e-6 + 0.5e-3

    step_time = parse_step_time("h200:llama-3.2-3b", engine="vllm")

    assert step_time.pass_ps(decoding(32, 32_000)) == pytest.approx(seconds * PS_PER_S, rel=1e-5)


def prefill(tokens: int, **more: object) -> Pass:
    return Pass(chunks=1, extend_len=tokens, attention=tokens**2, **more)  # type: ignore[arg-type]


def test_one_token_more_may_cost_a_whole_wave_of_tiles():
    """
    Why a prompt of 256 words was slow in the VTC artifact: with two tokens of its own it is 258.

    By hand, for an A10G with 80 multiprocessors: 3 rows of tiles, of which the products with 4,096
    columns make 96 tiles or 2 waves, those with 11,008 columns 258 tiles or 4 waves.
    """
    step_time = parse_step_time("a10g-2024:llama-2-7b")
    depth = 2 * (4 * 4096 + 11008) + 4 * (2 * 4096)
    body = 32 * depth * (2 * 128 * 128 * 80) / (70e12 * 0.887)

    jump = step_time.pass_ps(prefill(257)) - step_time.pass_ps(prefill(256))

    assert jump > 45 * MS
    assert step_time.pass_ps(prefill(384)) - step_time.pass_ps(prefill(257)) < 2 * MS
    assert step_time.pass_ps(prefill(257)) == pytest.approx((body + 0.5e-3) * PS_PER_S, rel=0.01)


def test_a_pass_that_admits_has_more_work_for_the_cpu():
    step_time = parse_step_time("a10g-2024:llama-2-7b")
    row = TraceRow(
        id="r", client="a", arrival_us=0, prompt=runs([("r", 300)]), output_len=1, max_tokens=1
    )
    request = Request(id="r", client="a", prompt=row.prompt, input_len=300, max_tokens=1, order=0)
    admits = prefill(300, admitted=[AdmittedJob(EngineJob(row, request), 300)])

    assert step_time.pass_ps(admits) - step_time.pass_ps(prefill(300)) == 15.6 * MS


def test_attention_of_a_chunk_counts_what_is_in_memory_already():
    """1,000 tokens behind 3,000 meet 3,000 each and half of their own."""
    step_time = parse_step_time("h200:llama-3.2-3b")
    alone = Pass(chunks=1, extend_len=1000, attention=1000 * 1000)
    behind = Pass(chunks=1, extend_len=1000, attention=1000 * (2 * 3000 + 1000))
    pairs = 1000 * 3000

    added = step_time.pass_ps(behind) - step_time.pass_ps(alone)

    assert added == pytest.approx(4 * 28 * 24 * 128 * pairs / (989e12 * 0.546) * PS_PER_S, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("a10g:llama-3.2-3b", 129_268),
        ("a10g:llama-3.1-8b", 39_601),
        ("a10g-2024:llama-2-7b", 14_828),
        ("l40s:llama-2-13b", 20_116),
        ("a100:llama-3.1-8b", 448_782),
        ("h100:llama-3.2-3b", 600_198),
        ("h200:llama-2-13b", 130_166),
    ],
)
def test_kv_capacity_is_what_the_weights_leave(name, tokens):
    assert parse_step_time(name).kv_tokens == tokens


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match=r"^a10g:llama-2-13b: the weights do not fit: 24.2 GiB"):
        parse_step_time("a10g:llama-2-13b")


def test_an_engine_adds_its_host_time_unless_the_gpus_row_has_it():
    one = decoding(1, 100)

    def of(name: str, engine: str) -> int:
        return parse_step_time(name, engine=engine).pass_ps(one)

    assert of("h100:llama-3.2-3b", "vllm") - of("h100:llama-3.2-3b", "sglang") == 0.2 * MS
    assert of("a10g-2024:llama-2-7b", "vllm") == of("a10g-2024:llama-2-7b", "sglang")


def test_a_straight_line_counts_every_request_of_the_pass():
    step_time = parse_step_time("linear:0.5,0.001,0.01")
    work = Pass(chunks=2, extend_len=300, decodes=3, context=10_000)

    assert step_time.pass_ps(work) == (500 + 300 + 50) * MS
    assert step_time.growth_ps(work) == 0
    assert step_time.kv_tokens is None


def test_jitter_has_mean_one_and_is_repeated_by_its_seed():
    """Twenty thousand passes: the mean is within four standard errors, the spread as asked."""
    exact = parse_step_time("h100:llama-3.2-3b")
    work = decoding(10, 5000)

    def draws(seed: int) -> list[float]:
        jittered = parse_step_time("h100:llama-3.2-3b", jitter=0.05, rng=random.Random(seed))
        return [jittered.pass_ps(work) / exact.pass_ps(work) for _ in range(20_000)]

    shares = draws(1)
    mean = sum(shares) / len(shares)
    spread = (sum((share - mean) ** 2 for share in shares) / len(shares)) ** 0.5

    assert draws(1) == shares
    assert draws(2) != shares
    assert abs(mean - 1) < 4 * 0.05 / len(shares) ** 0.5
    assert spread == pytest.approx(0.05, rel=0.03)
    assert max(abs(share - 1) for share in shares) <= 0.15 + 1e-9


@pytest.mark.parametrize(("jitter", "alike"), [(0.0, True), (0.05, False)])
def test_only_without_jitter_are_passes_alike(jitter, alike):
    step_time: EngineTime = parse_step_time("linear:1,0,0", jitter=jitter, rng=random.Random(0))

    assert step_time.alike is alike


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a10g", "expected linear:... or GPU:MODEL"),
        ("a10:llama-3.2-3b", "unknown GPU 'a10'; known are a100, a100-2024, a10g,"),
        ("a10g:llama", "unknown model 'llama'; known are llama-2-13b,"),
        ("linear:1,0", "expected linear:BASE,PER_EXTEND,PER_RUNNING in seconds"),
        ("linear:1,0,x", "expected linear:BASE"),
        ("linear:1,-1,0", "expected linear:BASE"),
        ("linear:nan,0,0", "expected linear:BASE"),
        ("linear:inf,0,0", "expected linear:BASE"),
        ("linear:0,0,0", "a pass must take time"),
    ],
)
def test_a_wrong_step_time_is_one_line(text, says):
    with pytest.raises(ConfigError) as caught:
        parse_step_time(text)

    assert str(caught.value).startswith("step-time: ") and says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("jitter", [-0.1, 0.5, float("nan")])
def test_a_wrong_jitter_is_one_line(jitter):
    with pytest.raises(ConfigError, match=r"^jitter: expected a share from 0 to 0\.33"):
        parse_step_time("linear:1,0,0", jitter=jitter, rng=random.Random(0))


OWN_GPU = """
gpus:
  my-card: {memory_gib: 48, bandwidth_gb_s: 900, peak_tflop_s: 200, e_w: 0.8, e_f: 0.7,
            e_kv: 0.8, e_a: 0.5, t0_ms: 0, g_us: 3, p: 2, host_ms: 0.4}
"""
OWN_MODEL = """
models:
  tiny: {layers: 2, d: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 128, vocab: 1000}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_own_gpu_and_model_may_be_named(tmp_path):
    constants = read_constants(written(tmp_path, OWN_GPU + OWN_MODEL))

    step_time = parse_step_time("my-card:tiny", constants=constants)

    assert step_time.pass_ps(decoding(1, 1)) > 0.4 * MS
    assert step_time.kv_tokens and step_time.kv_tokens > 10**8
    assert "h100" in constants.gpus


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu: {}", "gpu: unknown; expected gpus or models"),
        ("- a", "expected a mapping of names, got ['a']"),
        ("a: [", "line 1: not YAML"),
        ("gpus: 3", "gpus: expected a mapping of names, got 3"),
        ("gpus: {a:b: {}}", "gpus: expected a name without colons, got 'a:b'"),
        ("gpus: {1: {}}", "gpus: expected a name without colons, got 1"),
        ("gpus: {}\ngpus: {}", ", line 2: gpus: expected once, got twice"),
        ("gpus:\n  a: {}\n  a: {}", ", line 3: a: expected once, got twice"),
        ("gpus: {a: {}}", "gpus.a.memory_gib: missing"),
        (OWN_GPU.replace("e_w", "e_x"), "gpus.my-card.e_x: unknown; expected one of memory_gib,"),
        (
            OWN_GPU.replace("0.8,", "fast,", 1),
            "gpus.my-card.e_w: expected a number above 0 and under",
        ),
        (OWN_GPU.replace("e_w: 0.8", "e_w: 0"), "gpus.my-card.e_w: expected a number above 0"),
        (
            OWN_GPU.replace("e_w: 0.8", "e_w: yes"),
            "gpus.my-card.e_w: expected a number above 0 and",
        ),
        (OWN_GPU.replace("g_us: 3", "g_us: -3"), "gpus.my-card.g_us: expected a number from 0 and"),
        (
            OWN_GPU.replace("g_us: 3", "g_us: .nan"),
            "gpus.my-card.g_us: expected a number from 0 and",
        ),
        (OWN_GPU.replace("p: 2", "p: 0.5"), "gpus.my-card.p: expected a number from 1"),
        (OWN_MODEL.replace("d: 64", "d: 6.4"), "models.tiny.d: expected a whole number above 0"),
        (
            OWN_MODEL.replace("}", ", tied_head: 1}"),
            "models.tiny.tied_head: expected true or false",
        ),
    ],
)
def test_a_wrong_constants_file_is_one_line_with_file_and_key(tmp_path, text, says):
    path = written(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        read_constants(path)

    assert str(caught.value).startswith(str(path)) and says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_constants_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file or directory$"):
        read_constants(tmp_path / "none.yaml")
