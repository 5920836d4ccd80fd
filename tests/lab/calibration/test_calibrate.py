"""Constants fitted to measured passes: found again where they are known, doubted where they are not."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.traces.public_data import DATA, needs_data

from fairhit.cli import main
from fairhit_lab.calibration.calibrate import BOUNDS, as_yaml, fit
from fairhit_lab.calibration.measured_passes import decode, prefill, read_passes
from fairhit_lab.calibration.simplex import least
from fairhit_lab.sim.engines.interface import Pass
from fairhit_lab.sim.hardware.models import GPUS, MODELS
from fairhit_lab.sim.hardware.step_time import PS_PER_S, Roofline, parse_step_time
from fairhit_lab.sim.hardware.tables import read_constants

PROFILE = DATA / "vtc_measured" / "cost_profile_a10g_llama2_7b.csv"
LLAMA_3B, LLAMA_7B = MODELS["llama-3.2-3b"], MODELS["llama-2-7b"]


def passes_of(gpu, model=LLAMA_3B, *, phases=("prefill", "decode")):
    """Measurements of a GPU that is as its constants say."""
    step_time = Roofline(gpu, model, host_ms=0.0)
    works = [
        *(("prefill", batch, tokens, 0) for batch in (1, 4) for tokens in (16, 200, 900, 5000)),
        *(
            ("decode", batch, 1, context)
            for batch in (1, 8, 64, 300)
            for context in (50, 500, 4000)
        ),
    ]
    made = []
    for phase, batch, tokens, context in works:
        if phase in phases:
            empty = prefill(batch, tokens, context, 1.0)
            if phase == "decode":
                empty = decode(batch, context, 1.0)
            made.append(replace(empty, seconds=step_time.pass_ps(empty.work) / PS_PER_S))
    return made


def test_known_constants_are_found_again_from_others():
    """Or doubted: the weights' bandwidth and the constant part of a pass look alike."""
    truth = GPUS["h100"]
    start = replace(truth, e_w=0.5, e_f=0.5, e_kv=0.5, e_a=0.5, t0_ms=3.0, g_us=30.0)

    found = fit(start, LLAMA_3B, passes_of(truth))

    assert all(each.mean < 0.01 for each in found.after.values())
    assert found.before["decode"].mean > 0.2
    for name in set(BOUNDS) - set(found.unidentified) - {"p", "t0_ms"}:
        assert getattr(found.gpu, name) == pytest.approx(getattr(truth, name), rel=0.08), name
    assert "e_w" in found.unidentified and "e_kv" not in found.unidentified


def test_a_fit_is_repeated_to_the_bit():
    passes = passes_of(GPUS["l40s"])

    assert fit(GPUS["h100"], LLAMA_3B, passes) == fit(GPUS["h100"], LLAMA_3B, passes)


def test_what_no_pass_depends_on_is_named():
    """Without prefills the passes do not determine attention over prompts."""
    found = fit(GPUS["h100"], LLAMA_3B, passes_of(GPUS["h100"], phases=("decode",)))

    assert "e_a" in found.unidentified and "e_kv" not in found.unidentified
    assert set(found.after) == {"decode"}


def test_three_passes_do_not_determine_seven_constants():
    passes = [decode(1, 100, 0.03), decode(9, 900, 0.04), prefill(1, 512, 0, 0.1)]

    found = fit(GPUS["a10g"], LLAMA_7B, passes)

    assert found.unidentified == list(BOUNDS)
    assert all(each.mean < 0.001 for each in found.after.values())


@needs_data
def test_the_straight_line_fits_the_vtc_profile_as_well_as_was_found_before(tmp_path):
    """
    The reference fit of these data, without prompts below 64 tokens: decode 2.3 % in the mean and
    4.7 % at the 90th percentile, prefill 1.6 % and 3.0 %.
    """
    lines = PROFILE.read_text(encoding="utf-8").splitlines()
    long_prompts = [line for line in lines if not line.startswith(("8,", "16,", "32,"))]
    path = written(tmp_path, "\n".join(long_prompts))

    found = fit(replace(GPUS["a10g-2024"], sms=None), LLAMA_7B, read_passes(path))

    assert found.after["decode"].mean < 0.023 and found.after["decode"].p90 < 0.047
    assert found.after["prefill"].mean < 0.016 and found.after["prefill"].p90 < 0.036


@needs_data
def test_waves_of_tiles_fit_the_passes_that_the_straight_line_cannot():
    """With short prompts in large batches, a decode pass jumps where it needs one wave more."""
    passes = read_passes(PROFILE)

    waves = fit(GPUS["a10g-2024"], LLAMA_7B, passes)
    line = fit(replace(GPUS["a10g-2024"], sms=None), LLAMA_7B, passes)

    assert (waves.after["decode"].passes, waves.after["prefill"].passes) == (16, 23)
    assert waves.after["decode"].mean < 0.013 and waves.after["decode"].p90 < 0.016
    assert line.after["decode"].mean > 0.02


@needs_data
def test_the_built_in_row_is_what_the_profile_says():
    """Without the engine's CPU time, which the profile does not contain."""
    row = replace(GPUS["a10g-2024"], host_us=0.0, admit_ms=0.0)
    step_time = Roofline(row, LLAMA_7B, host_ms=0.0)
    errors = [
        abs(step_time.pass_ps(each.work) / PS_PER_S / each.seconds - 1)
        for each in read_passes(PROFILE)
        if each.phase == "decode"
    ]

    assert sum(errors) / len(errors) < 0.013


def written(folder: Path, text: str) -> Path:
    path = folder / "passes.csv"
    path.write_text(text + "\n", encoding="utf-8")
    return path


OWN = "phase,batch,tokens,context,seconds"


def test_our_own_columns_are_read(tmp_path):
    path = written(tmp_path, f"{OWN}\nprefill,2,300,100,0.05\ndecode,8,1,450.5,0.02")

    prefilled, decoded = read_passes(path)

    assert prefilled.work == Pass(chunks=2, extend_len=600, attention=600 * 500)
    assert decoded.work == Pass(decodes=8, context=3604)
    assert (prefilled.seconds, decoded.seconds) == (0.05, 0.02)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2", ":1: expected the columns phase,batch,tokens,context,seconds"),
        (OWN, "no measured passes in it"),
        (f"{OWN}\nchunk,1,1,1,1", ":2: phase: expected prefill or decode, got 'chunk'"),
        (f"{OWN}\nprefill,0,1,1,1", ":2: batch: expected a whole number above 0, got '0'"),
        (f"{OWN}\nprefill,1,1.5,1,1", ":2: tokens: expected a whole number above 0, got '1.5'"),
        (f"{OWN}\ndecode,1,,-1,1", ":2: context: expected a positive number, got '-1'"),
        (f"{OWN}\ndecode,1,,1,nan", ":2: seconds: expected a positive number, got 'nan'"),
        (f"{OWN}\ndecode,1,,1,0", ":2: seconds: expected a positive number, got '0'"),
        (f"{OWN}\ndecode,1", ":2: context: expected a positive number, got None"),
    ],
)
def test_a_wrong_line_is_one_line_with_its_place(tmp_path, capsys, text, says):
    path = written(tmp_path, text)

    status = main(["experiment", "calibrate", str(path), "--model", "llama-2-7b"])

    complaint = capsys.readouterr().err
    assert status == 2
    assert complaint.startswith(f"fairhit: error: {path}") and says in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--model", "gpt"], "--model: expected one of llama-2-13b,"),
        (["--model", "llama-2-7b", "--gpu", "x"], "--gpu: expected one of a100,"),
        (["--model", "llama-2-7b", "--sms", "-1"], "--sms: expected a whole number from 0"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path, capsys, flags, says):
    path = written(tmp_path, f"{OWN}\ndecode,1,1,1,0.1")

    assert main(["experiment", "calibrate", str(path), *flags]) == 2
    assert says in capsys.readouterr().err


def test_what_is_fitted_can_be_simulated_with(tmp_path, capsys):
    lines = ["decode,1,1,100,0.03", "decode,9,1,900,0.04", "prefill,1,512,0,0.1"]
    path, out = written(tmp_path, "\n".join([OWN, *lines])), tmp_path / "fitted.yaml"

    status = main(
        ["experiment", "calibrate", str(path), "--model", "llama-2-7b", "--out", str(out)]
    )

    step_time = parse_step_time("a10g:llama-2-7b", constants=read_constants(out))
    assert status == 0
    assert step_time.pass_ps(Pass(decodes=1, context=100)) / PS_PER_S == pytest.approx(0.03, 0.05)
    assert "not identified" in capsys.readouterr().out


def test_a_row_written_is_the_row_read(tmp_path):
    for name, gpu in GPUS.items():
        out = tmp_path / "row.yaml"
        out.write_text(as_yaml(name, gpu), encoding="utf-8")
        assert read_constants(out).gpus[name] == gpu


def test_the_simplex_walks_down_a_curved_valley():
    """Rosenbrock's function, the usual test: its least is 0 at (1, 1), along a bent narrow floor."""
    point, value = least(
        lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2, [-1.2, 1.0], [0.5, 0.5],
        rounds=200,
    )  # fmt: skip

    assert value < 1e-8 and math.dist(point, [1, 1]) < 1e-3


def test_the_bounds_hold_every_built_in_constant():
    """Or calibrating would move away from a row that is right."""
    for name, (low, high, _) in BOUNDS.items():
        for gpu, row in GPUS.items():
            assert low <= getattr(row, name) <= high or (gpu, name) == ("rtx4090", "e_f"), name
