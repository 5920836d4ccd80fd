"""Panels that take several workloads together: shares of the best of each, then medians."""

from fairhit_lab.report.figures.drawn import lines_of, table_of
from fairhit_lab.studies.shared.dominance import Goal
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Results

PANEL = Panel(
    title="all", form="path", x="tokens", y="jain", hue="policy", over="workload",
    best={"tokens": "most"},
)  # fmt: skip


def row(workload, policy, seed, tokens, jain):
    return {
        "workload": workload, "policy": policy, "seed": seed, "tokens": tokens, "jain": jain,
    }  # fmt: skip


def test_a_policy_is_one_spot_of_its_shares_of_the_best():
    """
    Tokens of a small workload count as much as those of a large one; Jain's index stays as it is.
    """
    rows = [
        row("small", "a", 0, 10, 0.5), row("small", "b", 0, 20, 1.0),
        row("large", "a", 0, 900, 0.7), row("large", "b", 0, 1000, 0.8),
    ]  # fmt: skip

    lines = lines_of(PANEL, Results(rows))

    spots = {
        hue: (spots[0].across.median, spots[0].y.median) for hue, spots in lines.by_hue.items()
    }
    assert spots == {"a": (0.7, 0.6), "b": (1.0, 0.9)}
    assert [len(spots) for spots in lines.by_hue.values()] == [1, 1]


def test_seeds_are_compared_with_the_best_of_their_own():
    rows = [
        row("w", "a", 0, 10, 1.0), row("w", "b", 0, 20, 1.0),
        row("w", "a", 1, 90, 1.0), row("w", "b", 1, 100, 1.0),
    ]  # fmt: skip

    (spot,) = lines_of(PANEL, Results(rows)).by_hue["a"]

    assert (spot.across.low, spot.across.high) == (0.5, 0.9)


def test_a_workload_without_a_value_is_left_out():
    rows = [row("w", "a", 0, 10, None), row("v", "a", 0, 10, 0.5)]

    (spot,) = lines_of(PANEL, Results(rows)).by_hue["a"]

    assert spot.y.median == 0.5


def test_a_table_of_goals_counts_who_dominates_whom():
    """
    By the line's name: on how many workloads it dominates the column's, and last anybody does.
    """
    rows = [
        row("w", "a", 0, 10, 1.0), row("w", "b", 0, 20, 1.0), row("w", "c", 0, 5, 0.5),
        row("v", "a", 0, 20, 0.9), row("v", "b", 0, 10, 1.0), row("v", "c", 0, 5, 0.9),
    ]  # fmt: skip
    panel = Panel(
        title="who", form="table", hue="policy", over="workload", columns=("tokens", "jain"),
        goals=(Goal(metric="tokens"), Goal(metric="jain")),
    )  # fmt: skip

    assert table_of(panel, Results(rows)) == [
        ["", "1", "2", "3"],
        ["1 a", "–", "", "2"],
        ["2 b", "1", "–", "2"],
        ["3 c", "", "", "–"],
        ["by anybody", "1", "", "2"],
    ]
