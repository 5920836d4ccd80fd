"""Panels: a figure as data, which report/figures draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fairhit_lab.studies.shared.dominance import Goal

# bars: grouped by x, a colour per hue, whiskers over the seeds. lines: y over x, a line per hue, the
# seeds' range as whiskers; a hue with a single x beside others that have several is a level. path: a line
# per hue through its cases in their order, a marker at each (trade-offs). table: a line per hue, a column
# for each of `columns`.
Form = Literal["bars", "lines", "path", "table"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A pair of axes. `x`, `y`, `hue` are columns of the rows; medians over the seeds are drawn.

    `of` "series" draws curves: x is then time_s, `y` the name of a metric (such as service_client),
    of the first seed. `where` keeps rows with these labels. `columns` are those of a table. `over`
    names a label, such as the workload, whose values a path merges: the columns of `best` are
    divided by the best of each value and seed, then x and y are medians over the values
    (`drawn.lines_of`). A table with `goals` has a line and a column per case, and in each cell the
    number of values of `over` on which the line's case dominates the column's. Titles and axis
    labels carry the unit.
    """

    title: str
    form: Form
    x: str = ""
    y: str = ""
    hue: str = ""
    of: Literal["rows", "series"] = "rows"
    where: Mapping[str, str | int | float] = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    zero: bool = True  # y begins at zero
    columns: Sequence[str] = ()
    over: str = ""
    best: Mapping[str, Literal["most", "least"]] = field(default_factory=dict)
    goals: Sequence[Goal] = ()
