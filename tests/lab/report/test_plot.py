"""Figures: every form is drawn, the same rows give the same bytes, a policy styles the same everywhere."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from tests.lab.studies.synthetic import drawn, study

from fairhit.errors import ConfigError
from fairhit_lab.report.figures.drawn import Curve, curves_of, lines_of, short, table_of
from fairhit_lab.report.figures.palette import POLICIES, colours_of, policy_of
from fairhit_lab.report.figures.placing import Mark, placed
from fairhit_lab.report.figures.plot import places_of, save_figure
from fairhit_lab.report.figures.plot_forms import draw, styles_of
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results


def rows(*values, seeds=2):
    """Policies with quanta and a speed, which the seed moves by a tenth."""
    return [
        {
            "policy": policy,
            "quantum": quantum,
            "seed": seed,
            "speed": None if speed is None else speed + seed / 10,
        }
        for policy, quantum, speed in values
        for seed in range(seeds)
    ]


ROWS = rows(("vtc", 0, 1.0), ("dlpm", 1024, 2.0), ("dlpm", 256, 3.0), ("lpm", 0, None))
SERIES = [
    {"policy": policy, "seed": 0, "time_s": time_s, "client": client, "metric": "m", "value": value}
    for policy in ("vtc", "dlpm")
    for client in ("c10", "c9")
    for time_s, value in ((0.0, 1.0), (30.0, None), (60.0, 2.0))
]
RESULTS = Results(ROWS, SERIES)
FORMS = {
    "bars": Panel(title="t", form="bars", x="quantum", y="speed", hue="policy"),
    "plain bars": Panel(title="t", form="bars", x="policy", y="speed", where={"quantum": 0}),
    "lines": Panel(title="t", form="lines", x="quantum", y="speed", hue="policy", log_y=True),
    "path": Panel(title="t", form="path", x="speed", y="speed", hue="policy"),
    "table": Panel(title="t", form="table", x="quantum", hue="policy", columns=("speed",)),
    "series": Panel(title="t", form="lines", of="series", y="m", where={"policy": "vtc"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_drawn_alike_each_time(form, tmp_path):
    paths = [tmp_path / "first.svg", tmp_path / "again.svg", tmp_path / "figure.png"]
    one = study(drawn(1), panels=[FORMS[form]])

    save_figure([paths[0], paths[2]], one, RESULTS)
    save_figure([paths[1]], one, RESULTS)

    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"<dc:date>" not in paths[0].read_bytes()
    assert paths[2].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("count", [1, 3, 4, 9, 13])
def test_any_number_of_panels_makes_a_grid(count, tmp_path):
    panels = [*FORMS.values()] * 2
    save_figure([tmp_path / "a.svg"], study(drawn(1), panels=panels[:count]), RESULTS)

    assert (tmp_path / "a.svg").exists()


def test_a_panel_without_anything_to_show_is_left_out(tmp_path):
    """As quick cases leave some: an empty pair of axes would look like a zero."""
    empty = replace(FORMS["bars"], where={"policy": "lpm"})
    paths = [tmp_path / "one.svg", tmp_path / "two.svg", tmp_path / "none.svg"]

    for path, panels in zip(paths, ([FORMS["bars"]], [empty, FORMS["bars"]], [empty]), strict=True):
        save_figure([path], study(drawn(1), panels=panels), RESULTS)

    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[2].exists()


def test_a_figure_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"--out: .*gone.*No such file"):
        save_figure([tmp_path / "gone" / "a.svg"], study(drawn(1), panels=[FORMS["bars"]]), RESULTS)


def test_spots_are_medians_with_the_range_of_the_seeds():
    lines = lines_of(FORMS["lines"], RESULTS)

    assert lines.categories == [0, 256, 1024] and lines.numeric
    assert [spot.x for spot in lines.by_hue["dlpm"]] == [256, 1024]
    assert lines.by_hue["vtc"][0].y == Interval(1.05, 1.0, 1.1, 2)
    assert "lpm" not in lines.by_hue  # which has no value


def test_bars_stand_in_the_order_of_the_rows_and_a_path_in_that_of_the_cases():
    bars, path = lines_of(FORMS["bars"], RESULTS), lines_of(FORMS["path"], RESULTS)

    assert bars.categories == [0, 1024, 256] and bars.place(256) == 2
    assert [spot.name for spot in path.by_hue["dlpm"]] == ["1k", "256"]
    assert [spot.name for spot in path.by_hue["vtc"]] == [""]


def test_two_cases_in_one_place_are_a_mistake_of_the_study():
    panel = Panel(title="t", form="lines", x="policy", y="speed")

    with pytest.raises(AssertionError, match="several cases at one x"):
        lines_of(panel, RESULTS)


def test_curves_come_by_client_in_the_order_people_count_with_their_gaps():
    assert curves_of(FORMS["series"], RESULTS) == [
        Curve("c9", [0.0, 30.0, 60.0], [1.0, None, 2.0]),
        Curve("c10", [0.0, 30.0, 60.0], [1.0, None, 2.0]),
    ]
    with pytest.raises(AssertionError, match="several curves of c10"):
        curves_of(Panel(title="t", form="lines", of="series", y="m"), RESULTS)


def test_a_table_has_a_line_a_case_and_says_where_there_is_nothing():
    assert table_of(FORMS["table"], RESULTS) == [
        ["quantum", "policy", "speed"],
        ["0", "vtc", "1.05 (1 to 1.1)"],
        ["1k", "dlpm", "2.05 (2 to 2.1)"],
        ["256", "dlpm", "3.05 (3 to 3.1)"],
        ["0", "lpm", "–"],
    ]


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (256, "256"),
        (4096, "4k"),
        (40_000, "40k"),
        (256_000, "256k"),
        (2_000, "2k"),
        (1000, "1,000"),
        (0.5, "0.5"),
        ("a b", "a b"),
    ],
)
def test_labels_are_short(label, shown):
    assert short(label) == shown


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("dlpm", "dlpm"), ("VTC(oracle)", "vtc"), ("vtc-oracle", "vtc-oracle"), ("RPM(5)", "rpm"),
        ("rr+lpm", "rr+lpm"), ("client-rr+vtc", "vtc"), ("preble-groups", "preble-groups"),
        ("c0", None), ("dlpmish", None), (4, None),
    ],
)  # fmt: skip
def test_a_policy_is_known_by_its_name(name, policy):
    assert policy_of(name) == policy


def test_a_policy_has_one_colour_whatever_is_beside_it():
    for names in (["vtc", "dlpm"], ["d2lpm", "c0", "vtc"], ["dlpm (a)", "dlpm (b)", "x", "vtc"]):
        colours = colours_of(names)
        assert colours["vtc"] == POLICIES["vtc"]
        assert colours[names[0]] in {POLICIES["vtc"], POLICIES["dlpm"]}
    assert colours["x"] not in {POLICIES["vtc"], POLICIES["dlpm"]}


def test_names_of_one_colour_differ_in_their_dashes():
    styles = styles_of(["dlpm", "dlpm (aged)", "vtc"])

    assert styles["dlpm"].colour == styles["dlpm (aged)"].colour
    assert styles["dlpm"].dashes != styles["dlpm (aged)"].dashes


@pytest.mark.parametrize("count", [1, 8, 9, 50])
def test_many_names_have_colours_of_their_own(count):
    colours = colours_of([f"c{n}" for n in range(count)])

    assert len(set(colours.values())) == count
    assert len(set(colours_of(list(range(count))).values())) == count


def test_names_of_markers_do_not_cover_each_other():
    crowd = [Mark(0.5, 0.5, "16k", must=False)] * 30 + [Mark(0.5, 0.5, "dlpm 64k", must=True)]

    places = placed(crowd)

    assert places[-1] == (1, 1) and places[0] == (1, -1)
    kept = [place for place in places if place is not None]
    assert 20 < len(kept) == len(set(kept))
    assert [place.is_far for place in kept].count(False) == 4


def test_a_name_does_not_cover_a_marker():
    marks = [Mark(0.5, 0.5, "4k", must=False), Mark(0.54, 0.54, "", must=False)]

    assert placed(marks) == [(1, -1), None]


def test_a_name_far_from_its_marker_stays_in_its_panel():
    crowd = [Mark(0.5, 0.95, "16k", must=False)] * 30

    ups = {place.up for place in placed(crowd) if place is not None}

    assert max(ups) == 1 and min(ups) < -1


def test_a_name_stays_in_its_panel():
    apart = [Mark(0.1, 0.1, "a", must=False), Mark(0.9, 0.9, "many letters", must=False)]

    assert placed(apart) == [(1, 1), (-1, 1)]  # the other one would stand out of the panel


@pytest.mark.parametrize(
    ("shown", "rows"),
    [
        ("a", ["a"]), ("abc", ["abc"]), ("abcd", ["ab", "cd"]), ("abcdef", ["abc", "def"]),
        ("abcdefgh", ["abcd", "efgh"]), ("aabbc", ["aa", "bb", "c"]), ("aaabbb", ["aaa", "bbb"]),
        ("aaaaabbbbb", ["ab"] * 5), ("aaaabbbbc", ["ab"] * 4 + ["c"]), ("aaaaa", ["aaa", "aa"]),
        ("abababab", ["ab"] * 4), ("abcabc", ["abc"] * 2),
    ],
)  # fmt: skip
def test_a_row_or_a_column_shows_one_quantity_where_as_many_panels_show_each(shown, rows):
    panels = [replace(FORMS["bars"], y=y) for y in shown]
    drawn_rows: dict[int, str] = {}

    for (row, column), panel in sorted(
        zip(places_of(panels), panels, strict=True), key=lambda i: i[0]
    ):
        assert column == len(drawn_rows.setdefault(row, ""))
        drawn_rows[row] += panel.y

    assert list(drawn_rows.values()) == rows


def test_a_figure_is_narrow_enough_for_800_pixels(tmp_path):
    """Nine points at 10.8 inches are nine pixels of 800."""
    from matplotlib.image import imread

    panels = [replace(FORMS["plain bars"], title=str(number)) for number in range(8)]
    save_figure([tmp_path / "a.png"], study(drawn(1), panels=panels), RESULTS)

    assert imread(tmp_path / "a.png").shape[1] <= 10.8 * 130


def test_what_has_no_place_on_the_scale_is_a_level_and_adds_no_tick():
    """
    As VTC has no quantum: its case stands once, with a 0, beside the sweep of DLPM's.
    """
    axes = Figure().subplots()
    one = Results(rows(("vtc", 0, 1.0), ("dlpm", 1024, 2.0), ("dlpm", 256, 3.0)))

    draw(axes, FORMS["lines"], one, styles_of(["vtc", "dlpm"]))

    assert [text.get_text() for text in axes.get_xticklabels()] == ["256", "1k"]
    assert axes.get_legend_handles_labels()[1] == ["vtc", "dlpm"]
    assert list(axes.lines[0].get_ydata()) == [1.05, 1.05]


def test_an_axis_that_begins_at_zero_has_room_above():
    axes = Figure().subplots()
    panel = replace(FORMS["lines"], log_y=False)

    draw(
        axes,
        panel,
        Results(rows(("dlpm", 1, 10.0), ("dlpm", 2, 10.1), seeds=1)),
        styles_of(["dlpm"]),
    )

    assert axes.get_ylim() == (0, pytest.approx(10.1 * 1.05))
