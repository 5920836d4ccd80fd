"""Two small studies with results as the runner writes them: every form of a panel, every kind of verdict."""

from dataclasses import replace
from pathlib import Path

from fairhit_lab.report.figures.plot import save_figure
from fairhit_lab.report.study_files import write_study
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Study, Verdict

POLICIES = ("vtc", "dlpm", "lpm")
CLIENTS = ("c0", "c1", "c10", 'a "quoted" <b>&client')
SEEDS = (0, 1, 2)
# In no text of the page may this be more than text.
HOSTILE = "<script>document.title = 'taken'</script> & </script> \u2028"

PANELS = [
    Panel(title="Bars", form="bars", x="load", y="throughput", hue="policy", y_label="tokens/s"),
    Panel(title="Lines", form="lines", x="load", y="jain", hue="policy", log_x=True),
    Panel(title="Path", form="path", x="throughput", y="jain", hue="policy", zero=False),
    Panel(title="No hue", form="bars", x="policy", y="throughput", where={"load": 2}),
    Panel(
        title="Curves",
        form="lines",
        of="series",
        x="time_s",
        y="service_client",
        hue="client",
        where={"policy": "dlpm", "load": 2},
    ),
    Panel(title="Empty", form="bars", x="load", y="jain", hue="policy", where={"load": 77}),
    Panel(title="A table", form="table", hue="policy", x="load", columns=("throughput", "jain")),
]
VERDICTS = [
    Verdict(claim=f"DLPM beats VTC {HOSTILE}", paper="2.87x", ours="1.9 (1.7 to 2.2)x", holds="holds"),
    Verdict(claim="e", paper="2", ours="3", holds="holds in the median only", why="seed 2 fails"),
    Verdict(claim="b", paper="2", ours="3", holds="holds under conditions only",
            why=f"the load is 2 {HOSTILE}"),
    Verdict(claim="c", paper="2", ours="3", holds="does not hold", why="as the cache is smaller"),
    Verdict(claim="d", paper="2", ours="3", holds="not comparable", why="other hardware",
            least=0, greatest=1.5),
    Verdict(claim="f", paper="not printed", ours="3", holds="holds", whose="ours"),
]  # fmt: skip

SAMPLE = Study(
    title=f"A sample {HOSTILE}",
    source="A paper, Figure 1",
    shows=f"what stands where {HOSTILE}",
    takes="no time",
    cases=lambda _: [],
    measures={"throughput": lambda _: None, "jain": lambda _: None},
    panels=PANELS,
    judge=lambda _: VERDICTS,
    choices=f"loads are not printed {HOSTILE}",
)
SMALL = replace(SAMPLE, title="A small one", panels=PANELS[:1], judge=lambda _: VERDICTS[3:4])
STUDIES = {
    "dlpm-sample": SAMPLE,
    "vtc-small": SMALL,
    "pareto-missing": replace(SMALL, whose="ours"),
}


def results() -> Results:
    """Three policies, two loads, three seeds; the curves of the first seed."""
    cases = [(policy, load) for policy in POLICIES for load in (2, 4096)]
    rows = [
        {"policy": policy, "load": load, "seed": seed,
         "throughput": 1000.0 + 37.123456789 * number + seed, "jain": 0.9 - number / 50 + seed / 500,
         "config": "123456789012"}
        for number, (policy, load) in enumerate(cases)
        for seed in SEEDS
    ]  # fmt: skip
    series = [
        {"policy": policy, "load": load, "seed": 0, "time_s": 30.0 * step, "client": client,
         "metric": metric, "value": None if step == 3 else 10.0 * step + place + number}
        for number, (policy, load) in enumerate(cases)
        for step in range(12)
        for place, client in enumerate(CLIENTS)
        for metric in ("service_client", "response_time")
    ]  # fmt: skip
    return Results(rows, series)


def write_sample(root: Path, *, names: tuple[str, ...] = ("dlpm-sample", "vtc-small")) -> None:
    """The folders of those studies."""
    about = {
        "commit": "0123456789ab",
        "date": "2026-01-02",
        "quick": True,
        "seeds": list(SEEDS),
        "machine": {"processor": f"A processor {HOSTILE}", "cores": 2},
    }
    found = results()
    for name in names:
        study = STUDIES[name]
        kept = found if name == "dlpm-sample" else Results(found.rows)
        write_study(
            root / name, name, kept, commit="0123456789ab",
            verdicts=study.verdicts(kept), about=about,
        )  # fmt: skip
        save_figure([root / name / "figure.svg"], study, kept)
