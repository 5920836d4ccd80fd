"""The passes that a GPU is measured by: a real transformer's, and a CSV that the calibration reads."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch, which comes with vLLM")

from benchmarks.gpu import steps  # noqa: E402
from benchmarks.gpu.constants_file import add_row  # noqa: E402
from benchmarks.gpu.decoder import Decoder  # noqa: E402

from fairhit_lab.calibration.measured_passes import read_passes  # noqa: E402
from fairhit_lab.sim.hardware.models import GPUS  # noqa: E402
from fairhit_lab.sim.hardware.tables import read_constants  # noqa: E402


def toy(**changes):
    values = {"room": 2, "length": 40, "device": "cpu", "dtype": torch.float32} | changes
    return Decoder(steps.TOY, **values)


@pytest.fixture
def tokens():
    return torch.randint(steps.TOY.vocab, (2, 24), generator=torch.Generator().manual_seed(1))


def test_a_prompt_in_one_pass_or_token_by_token_is_the_same(tokens):
    """Decodes have no mask: a prefill that saw what comes later would differ from them."""
    whole = toy().forward(tokens, 0)

    stepped = toy()
    for place in range(tokens.shape[1]):
        last = stepped.forward(tokens[:, place : place + 1], place)

    assert torch.allclose(whole, last, atol=1e-4)


def test_a_prefill_behind_a_cached_prefix_is_the_same(tokens):
    whole = toy().forward(tokens, 0)

    cut = toy()
    cut.forward(tokens[:, :17], 0)

    assert torch.allclose(whole, cut.forward(tokens[:, 17:], 17), atol=1e-4)


def test_what_is_cached_matters(tokens):
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % steps.TOY.vocab

    assert not torch.allclose(toy().forward(tokens, 0), toy().forward(other, 0), atol=1e-2)


def test_its_weights_are_those_of_the_shape():
    decoder = toy()

    in_layers = sum(each.numel() for layer in decoder.layers for each in layer)
    assert in_layers == steps.TOY.body_weights
    assert decoder.head.numel() == steps.TOY.head_weights


def test_the_grid_stays_within_the_memory():
    cases = list(steps.grid(20_000))

    assert max(case.kv_tokens for case in cases) <= 20_000
    prefills = [case for case in cases if case.phase == "prefill"]
    assert {case.context for case in prefills} == {0, 512, 2048, 8192}
    assert max(case.batch * case.tokens for case in prefills) <= steps.MOST_PREFILLED
    assert {case.batch for case in cases if case.phase == "decode"} == set(steps.DECODE_BATCHES)


def test_the_whole_way_at_toy_size(tmp_path, capsys, monkeypatch):
    """On a CPU: from passes to a row of constants, which say nothing here."""
    monkeypatch.setattr(steps, "WARM_UPS", 1)
    monkeypatch.setattr("fairhit_lab.calibration.calibrate.ROUNDS", 2)
    out = tmp_path / "passes.csv"

    status = steps.main(
        ["--model", "toy", "--device", "cpu", "--gpu", "h100", "--out", str(out),
         "--divisor", "512", "--repeats", "2", "--add", str(tmp_path / "gpus.yaml"), "--name", "mine"]
    )  # fmt: skip

    (row,) = read_constants(tmp_path / "gpus.yaml").gpus.keys() - GPUS.keys()
    assert row == "mine"
    comment = (tmp_path / "gpus.yaml").read_text().splitlines()[1]
    assert comment.startswith("  # cpu, torch ") and comment.endswith(steps.today())
    passes = read_passes(out)
    assert status == 0 and {each.phase for each in passes} == {"prefill", "decode"}
    assert len(passes) == len(list(steps.grid(65_536 // 512, 512))) > 20
    said = capsys.readouterr().out
    assert "# cpu, torch" in said and "gpus:\n  fitted:\n" in said and "e_kv:" in said


WRITTEN = """# ours
models:
  own: {layers: 2, d: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 128, vocab: 256}
gpus:
    # an old one
    old:  # of last year
        memory_gib: 10
        bandwidth_gb_s: 600
        peak_tflop_s: 70
        e_w: 0.5
        e_f: 0.5
        e_kv: 0.5
        e_a: 0.5
        t0_ms: 1
        g_us: 1
        p: 2
"""


def test_a_row_is_added_to_what_is_there(tmp_path):
    """With its comments, whatever the indentation."""
    path, h100 = tmp_path / "gpus.yaml", GPUS["h100"]
    path.write_text(WRITTEN, encoding="utf-8")

    add_row(path, "new", h100, "an H100, today")

    before, _, after = path.read_text(encoding="utf-8").partition("gpus:\n")
    assert before + "gpus:\n" + after[after.index("    # an old one") :] == WRITTEN
    assert after.startswith("    # an H100, today\n    new:\n        memory_gib:")
    found = read_constants(path)
    assert (
        found.gpus["new"] == h100 and found.gpus["old"].memory_gib == 10 and "own" in found.models
    )
    assert [each.name for each in tmp_path.iterdir()] == ["gpus.yaml"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WRITTEN, "has a row 'old'; --name gives it another name"),
        ("gpus: {}\n", "expected a line that is 'gpus:'"),
        ("gpu: 1\n", "gpu: unknown; expected gpus or models"),
        (None, "No such folder"),
    ],
)
def test_a_file_that_no_row_fits_is_one_line_before_anything_is_measured(
    tmp_path, capsys, text, line
):
    path = tmp_path / "gpus.yaml" if text else tmp_path / "none" / "gpus.yaml"
    if text:
        path.write_text(text, encoding="utf-8")

    status = steps.main(
        ["--model", "toy", "--device", "cpu", "--gpu", "h100", "--out", str(tmp_path / "passes.csv"),
         "--add", str(path), "--name", "old"]
    )  # fmt: skip

    message = capsys.readouterr().err
    assert status == 2 and line in message and message.count("\n") == 1
    assert not (tmp_path / "passes.csv").exists()
    assert not text or path.read_text(encoding="utf-8") == text


def test_a_csv_that_cannot_be_made_is_one_line(tmp_path, capsys):
    out = tmp_path / "none" / "passes.csv"

    status = steps.main(["--model", "toy", "--device", "cpu", "--out", str(out)])

    assert status == 2
    assert capsys.readouterr().err == f"steps: --out: {out}: No such file or directory\n"


def test_a_gpu_that_is_not_there_is_one_line(tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(SystemExit) as stopped:
        steps.main(["--model", "toy", "--out", str(tmp_path / "x.csv")])

    assert stopped.value.code == 2
    assert "no CUDA device here" in capsys.readouterr().err
