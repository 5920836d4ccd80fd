"""The simulator against the VTC artifact's measured runs, and the committed table of all of them."""

import gzip
import json
import math
import re
from pathlib import Path

import pytest
from tests.lab.traces.public_data import DATA, needs_data

from fairhit.cli import main
from fairhit.errors import ConfigError
from fairhit_lab.runner.registry import EXPERIMENTS
from fairhit_lab.studies.shared.data_folder import data_folder
from fairhit_lab.studies.vtc_artifact import calibration as vtc_calibration
from fairhit_lab.studies.vtc_artifact.case import AsMeasured
from fairhit_lab.studies.vtc_artifact.comparison import markdown, numbers_of, sentence
from fairhit_lab.studies.vtc_artifact.runs import COLUMNS, REQUESTS, read_runs

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "vtc_calibration.json"
PAGE = ROOT / "docs" / "reference" / "step-time.md"


@needs_data
@pytest.mark.parametrize(
    ("name", "throughput", "ttft"),
    [
        ("increase/FCFS", 0.01, 0.04),  # a ramp: its TTFT was 42 % off with a straight line
        ("increase/VTC", 0.01, 0.04),
        ("real/RPM5", 0.01, 0.04),  # hardly loaded: TTFT is mostly the engine's late ears
        ("real/VTC", 0.02, 0.06),
        ("poisson_short_long/VTC", 0.02, 0.06),
        ("llama13b_a100_65000_256/FCFS", 0.03, 0.06),
    ],
)
def test_a_simulated_run_is_as_fast_as_the_measured_one(name, throughput, ttft):
    (run,) = [each for each in read_runs(DATA) if each.name == name]

    measured, simulated = (
        numbers_of(rows, name) for rows in (run.rows(), vtc_calibration.simulated(run))
    )

    assert simulated.tokens_per_s == pytest.approx(measured.tokens_per_s, rel=throughput)
    assert simulated.ttft_s == pytest.approx(measured.ttft_s, rel=ttft)


@needs_data
def test_a_run_of_one_seed_is_one_run():
    (run,) = [each for each in read_runs(DATA) if each.name == "real/RPM5"]

    def once(seed):
        return vtc_calibration.simulated(run, jitter=0.05, seed=seed)

    assert once(1) == once(1)
    assert once(1) != once(2)


def recorded():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_committed_runs_reach_what_was_asked_of_them():
    record = recorded()
    errors = record["errors_percent"]

    assert len(record["rows"]) == 25 and not record["interrupted"]
    assert all(row["jittered"]["seeds"] >= 3 for row in record["rows"])
    assert errors["tokens_per_s_mean"] <= 2 and errors["tokens_per_s_worst"] <= 8
    assert errors["ttft_median"] <= 6


def test_the_page_quotes_the_committed_runs():
    record, page = recorded(), PAGE.read_text(encoding="utf-8")

    for table in markdown(record["rows"]):
        assert table in page
    assert " ".join(sentence(record["errors_percent"], 25).split()) in " ".join(page.split())


CROSS_VALIDATED = RESULTS.with_name("vtc_cross_validation.json")


def test_the_page_quotes_the_runs_that_were_left_out():
    record, page = json.loads(CROSS_VALIDATED.read_text(encoding="utf-8")), PAGE.read_text("utf-8")

    for folds in ("by run", "by workload"):
        errors = record[folds]["errors_percent"]
        for kind in ("fitted_to_all", "left_out"):
            assert " ".join(sentence(errors[kind], 25).split()) in " ".join(page.split())
        assert errors["left_out"]["tokens_per_s_mean"] <= 1
        assert errors["left_out"]["tokens_per_s_worst"] <= 4
    # The median aimed at, 2 %, is what measured runs miss each other by; the page says what misses it.
    missed = [row["run"] for row in record["by run"]["rows"] if abs(row["left_out"][1]) > 8]
    assert missed == ["poisson_short_long/FCFS"] and f"`{missed[0]}`" in page
    for folds, worst in (("by run", 9), ("by workload", 8)):
        errors = record[folds]["errors_percent"]["left_out"]
        assert errors["ttft_median"] <= 2.5 and errors["ttft_worst"] <= worst
    assert record["seeds"] == 11
    for errors in record["repeated"]["errors_percent"].values():
        said = " ".join(sentence(errors, record["repeated"]["runs"]).split())
        assert said in " ".join(page.split())


def test_the_page_names_every_constant_of_the_table():
    """A row of `models.py` that changes must change on the page, too."""
    from fairhit_lab.sim.hardware.models import GPUS

    page = PAGE.read_text(encoding="utf-8")
    for name, gpu in GPUS.items():
        (line,) = re.findall(rf"^\| `{name}` \|(.*)$", page, re.MULTILINE)
        cells = [cell.strip().rstrip("*") for cell in line.split("|")]
        stated = [
            gpu.memory_gib, gpu.bandwidth_gb_s, gpu.peak_tflop_s, gpu.sms,
            gpu.e_w, gpu.e_f, gpu.e_kv, gpu.e_a, gpu.t0_ms, gpu.g_us, gpu.p,
        ]  # fmt: skip
        assert stated == [float(cell) if cell else None for cell in cells[: len(stated)]], name


ROWS = """\
overload,FCFS,0.000,0,256,16,0.200,1.000
overload,FCFS,0.100,1,256,16,0.400,1.400
increase,VTC,0.000,0,256,16,0.200,1.000
increase,VTC,5.000,1,256,16,0.400,1.400
"""


HEAD = ",".join(COLUMNS)


def folder_with(folder, rows=ROWS, columns=HEAD):
    path = folder / REQUESTS
    path.parent.mkdir()
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(f"{columns}\n{rows}")
    return folder


def experiment(*arguments):
    return main(["experiment", "vtc-calibration", *map(str, arguments)])


def test_every_run_of_the_folder_is_compared_and_written(tmp_path, capsys):
    out = tmp_path / "out.json"

    status = experiment("--data", folder_with(tmp_path), "--seeds", "1", "--out", out)

    record = json.loads(out.read_text(encoding="utf-8"))
    assert status == 0
    assert [row["run"] for row in record["rows"]] == ["overload/FCFS", "increase/VTC"]
    assert record["rows"][0]["measured"]["ttft_s"] == 0.3
    assert record["rows"][0]["jittered"]["seeds"] == 1
    assert {"commit", "machine", "date"} <= set(record)
    assert "overload/FCFS" in capsys.readouterr().out


def test_runs_of_unknown_schedulers_are_left_out_in_one_line(tmp_path, capsys):
    rows = ROWS + "overload,SJF,0,0,1,1,1,1\nincrease,LIFO,0,0,1,1,1,1\n"

    assert experiment("--data", folder_with(tmp_path, rows), "--seeds", "1") == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if "unknown" in line]
    assert len(lines) == 1
    assert lines[0].startswith(
        "left out, as their scheduler is unknown: overload/SJF, increase/LIFO ("
    )


SLOWER = "".join(f"more,FCFS,{n}.0,{n % 2},{200 + 30 * n},16,0.{3 + n},1.{n}\n" for n in range(5))


def test_each_run_is_simulated_with_constants_that_have_not_seen_it(tmp_path, capsys):
    out = tmp_path / "out.json"
    folder = folder_with(tmp_path, ROWS + SLOWER)

    assert experiment("--data", folder, "--cross-validate", "--out", out) == 0

    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["command"].endswith("--cross-validate")
    rows = record["by run"]["rows"]
    assert [row["run"] for row in rows] == ["overload/FCFS", "increase/VTC", "more/FCFS"]
    assert set(rows[0]["constants"]) == {"host_us", "admit_ms", "e_kv"}
    assert any(row["left_out"] != row["fitted_to_all"] for row in rows)
    assert record["seeds"] == 3 and record["repeated"] is None
    assert "left out" in capsys.readouterr().out


def test_too_few_runs_to_leave_one_out_are_one_line(tmp_path, capsys):
    assert experiment("--data", folder_with(tmp_path), "--cross-validate") == 2
    assert "--cross-validate: too few runs" in capsys.readouterr().err


def test_a_constant_is_found_again_from_runs_made_with_it():
    """Runs made with one constant moved: the fit moves it back, and the other ones stay about."""
    from fairhit_lab.studies.vtc_artifact import cross_validation as cv

    def made(slope, value):
        return (0.01 * slope * value, -0.02 * slope * value)

    names = list(cv.FITTED["a10g-2024"])
    seen = [
        cv.Sensitivity(
            run=None,
            measured=made(slope, 30.0),  # 30 us more on the host
            simulated=(0.0, 0.0),
            slopes=[made(slope, 1.0), (0.001 * place, 0.0), (0.0, 0.5 * place)],
        )
        for place, slope in enumerate((1.0, 2.0, -1.0, 0.5))
    ]

    found = cv.fitted("a10g-2024", seen)

    published = cv._published("a10g-2024")
    assert found["host_us"] == pytest.approx(published["host_us"] + 30)
    assert all(found[name] == pytest.approx(published[name]) for name in names[1:])


def test_a_derivative_is_taken_to_both_sides_within_the_bounds():
    """The share of the bandwidth is published near 1, its bound: what is above that side is not simulated."""
    from fairhit_lab.studies.vtc_artifact import cross_validation as cv
    from fairhit_lab.studies.vtc_artifact.comparison import RunNumbers

    asked, published = [], cv._published("a10g-2024")

    def simulate(_, constants):
        gpu = constants.gpus["a10g-2024"]
        asked.append(gpu)
        bent = (gpu.host_us - published["host_us"]) ** 2  # its derivative is 0 to both sides only
        return 0.01 * gpu.host_us + bent + 3 * gpu.e_kv, -0.1 * gpu.admit_ms

    found = cv.sensitivity(
        None, "a10g-2024", RunNumbers(tokens_per_s=1, ttft_s=1, table=None), simulate
    )

    assert max(gpu.e_kv for gpu in asked) == 1
    for slope, expected in zip(found.slopes, [(0.01, 0), (0, -0.1), (3, 0)], strict=True):
        assert slope == pytest.approx(expected)


def left_out(run, ttft, *, own=0.0):
    """A run whose time to the first token is missed by this share, its throughput by none."""
    from fairhit_lab.studies.vtc_artifact.cross_validation import LeftOut

    missed = (0.0, ttft)
    return LeftOut(
        run=run, published=missed, fitted_to_all=missed, left_out=(0.0, own), constants={}
    )


def test_a_run_is_predicted_from_the_other_runs_of_its_workload():
    """A model without a constant per run cannot be better than one measured run is at another."""
    from fairhit_lab.studies.vtc_artifact import repeatability

    runs = [
        left_out("overload/FCFS", 0.21, own=0.05),  # 10 % beyond the other: the day, not the model
        left_out("overload/VTC", 0.10, own=0.07),
        left_out("alone/VTC", 0.5),  # nothing to predict it from
    ]

    repeated = repeatability.of(runs)

    assert repeated.runs == ["overload/FCFS", "overload/VTC"]
    assert repeated.others.ttft_worst == pytest.approx(0.10)
    assert repeated.mean.ttft_worst == pytest.approx(1.1**0.5 - 1)
    assert repeated.simulator.ttft_median == pytest.approx(0.06)
    assert repeatability.of(runs[1:]) is None


def test_the_middle_of_the_seeds_is_compared():
    """One seed in which the batches fall out of step must not decide."""
    from fairhit_lab.studies.vtc_artifact.comparison import RunNumbers
    from fairhit_lab.studies.vtc_artifact.cross_validation import middle

    draws = [RunNumbers(tokens_per_s=870, ttft_s=ttft, table=None) for ttft in (90, 77, 91)]

    assert middle(draws) == pytest.approx((math.log(870), math.log(90)))


def test_an_interrupt_keeps_the_runs_that_are_done(tmp_path, monkeypatch):
    compare = vtc_calibration.compare

    def interrupted(run, seeds):
        if run.workload == "increase":
            raise KeyboardInterrupt
        return compare(run, seeds)

    monkeypatch.setattr(vtc_calibration, "compare", interrupted)
    out = tmp_path / "out.json"

    assert experiment("--data", folder_with(tmp_path), "--seeds", "0", "--out", out) == 130
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["interrupted"] and [row["run"] for row in record["rows"]] == ["overload/FCFS"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--seeds", "-1"], "--seeds: expected a whole number from 0"),
        (["--only", "unknown"], "--only: no run has 'unknown' in its name"),
        (["--out", "nowhere/out.json"], "--out: there is no folder nowhere"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path, capsys, flags, says):
    assert experiment("--data", folder_with(tmp_path), *flags) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "columns", "says"),
    [
        (ROWS, "a,b", ":1: expected the columns workload,scheduler,"),
        ("overload,FCFS,soon,0,1,1,1,1\n", HEAD, ":2: expected numbers, got ["),
        ("overload,FCFS\n", HEAD, ":2: expected numbers, got ["),
        ("overload,FCFS,0,0,1,1,1,1,7\n", HEAD, ":2: expected 8 cells, got 9"),
        ("", HEAD, ": has no runs"),
        ("overload,FCFS,nan,0,1,1,1,1\n", HEAD, ":2: t_s: expected 0 to 1,000,000,000, got nan"),
        ("overload,FCFS,-1,0,1,1,1,1\n", HEAD, ":2: t_s: expected 0 to"),
        ("overload,FCFS,0,-7,1,1,1,1\n", HEAD, ":2: client: expected 0 to"),
        ("overload,FCFS,0,0,0,1,1,1\n", HEAD, ":2: input_tokens: expected 1 to"),
        ("overload,FCFS,0,0,1,0,1,1\n", HEAD, ":2: output_tokens: expected 1 to"),
        ("overload,FCFS,0,0,1,1,inf,1\n", HEAD, ":2: first_token_latency_s: expected -1 to"),
        ("overload,FCFS,0,0,1,1,1,-2\n", HEAD, ":2: request_latency_s: expected -1 to"),
        ("overload,FCFS,0,0,1,1,0,0\n", HEAD, ":2: expected both latencies -1, or 0 < first_"),
        ("overload,FCFS,0,0,1,1,-1,2\n", HEAD, ":2: expected both latencies -1, or 0 < first_"),
        (
            "overload,SJF,0,0,1,1,1,1\n",
            HEAD,
            ": overload/SJF: unknown scheduler 'SJF'; known: FCFS, VTC, WVTC, LCF, VTC_oracle,",
        ),
        ("overload,RPM,0,0,1,1,1,1\n", HEAD, ": overload/RPM: unknown scheduler 'RPM'"),
        (
            "llama13b_a100_big_256,VTC,0,0,1,1,1,1\n",
            HEAD,
            ": llama13b_a100_big_256/VTC: expected llama13b_a100_<KV tokens>_<length>",
        ),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, capsys, rows, columns, says):
    assert experiment("--data", folder_with(tmp_path, rows, columns)) == 2
    assert f"{REQUESTS}{says}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "which"),
    [("1,1,-1,-1", "measured"), ("1000000,1,1,1", "simulated")],
    ids=["all rejected", "larger than the KV memory"],
)
def test_a_run_that_served_nothing_is_one_line(tmp_path, capsys, row, which):
    folder = folder_with(tmp_path, f"overload,FCFS,0,0,{row}\n")

    assert experiment("--data", folder, "--seeds", "0") == 2
    assert f"overload/FCFS, {which}: no request was served" in capsys.readouterr().err


def test_a_study_names_the_measured_run_that_the_folder_lacks(tmp_path):
    case = AsMeasured(labels={}, run="real/VTC")

    with pytest.raises(ConfigError, match=r"requests\.csv\.gz: has no run real/VTC$"):
        case.outcome(0, folder_with(tmp_path))


def test_a_file_that_is_no_gzip_is_one_line(tmp_path, capsys):
    (folder_with(tmp_path) / REQUESTS).write_text("plain", encoding="utf-8")

    assert experiment("--data", tmp_path) == 2
    assert f"{REQUESTS}: cannot be read: " in capsys.readouterr().err


@needs_data
def test_a_figure_is_drawn(tmp_path, capsys):
    flags = ("--data", DATA, "--only", "real/RPM5", "--seeds", "0", "--figure")

    assert experiment(*flags, tmp_path / "figure.png") == 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert experiment(*flags, tmp_path / "figure.gpx") == 2
    assert "--figure: expected .svg, .png or .pdf, got 'figure.gpx'" in capsys.readouterr().err


def test_a_figure_needs_its_ramp(tmp_path, capsys):
    assert experiment("--data", folder_with(tmp_path), "--figure", tmp_path / "a.png") == 2
    assert "--figure: shows increase/FCFS, which is not among the runs" in capsys.readouterr().err


def test_the_data_folder_is_named_by_flag_or_environment(tmp_path):
    folder_with(tmp_path)

    assert data_folder(None, REQUESTS, {"FAIRHIT_DATA": str(tmp_path)}) == tmp_path
    assert data_folder(str(tmp_path), REQUESTS, {"FAIRHIT_DATA": "elsewhere"}) == tmp_path
    with pytest.raises(ConfigError, match=r"^--data: needed, or FAIRHIT_DATA: the folder"):
        data_folder(None, REQUESTS, {})
    with pytest.raises(ConfigError, match=r"^FAIRHIT_DATA: .*gone has no vtc_measured"):
        data_folder(None, REQUESTS, {"FAIRHIT_DATA": str(tmp_path / "gone")})


def test_list_names_every_experiment(capsys):
    assert main(["experiment", "list"]) == 0

    shown = capsys.readouterr().out
    assert all(name in shown for name in EXPERIMENTS)


def test_every_experiment_loads_and_has_flags(capsys):
    for name in EXPERIMENTS:
        with pytest.raises(SystemExit) as left:
            main(["experiment", name, "--help"])
        assert left.value.code == 0
        assert EXPERIMENTS[name].summary.split()[0] in capsys.readouterr().out


def test_an_unknown_experiment_is_one_line(capsys):
    assert main(["experiment", "fig99"]) == 2
    said = capsys.readouterr().err
    assert "experiment: expected one of calibrate, " in said and "fig99" in said
