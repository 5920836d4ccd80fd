"""All plotting code: figures from the numbers that experiments hand over, for the docs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairlead.errors import ConfigError, in_words

MEASURED, SIMULATED, EARLIER = "#444444", "#0072b2", "#d55e00"
# x and y of a line, or of points.
Series = tuple[Sequence[float], Sequence[float]]


def save_calibration(
    path: Path,
    *,
    curve: Series,
    straight: Series,
    points: dict[str, Series],
    ramp: dict[str, Series],
) -> None:
    """The time of a pass by its tokens, and the ramp's time to the first token by arrival.

    Milliseconds and tokens; seconds and seconds. Raises ConfigError if the file cannot be written.
    """
    figure, (left, right) = _panels("Passes are staircases", "Fig. 9's ramp under FCFS")
    left.plot(*curve, color=SIMULATED, label="whole waves of tiles")
    left.plot(*straight, color=EARLIER, linestyle="--", label="straight line")
    for (name, series), marker in zip(points.items(), "ox", strict=True):
        left.plot(*series, marker, color=MEASURED, label=name)
    left.set(xlabel="tokens computed in a pass", ylabel="ms, less attention")
    # One lies upon the other: the lower one is wide.
    for (name, series), look in zip(
        ramp.items(), ((MEASURED, 7, 0.3), (SIMULATED, 2, 1)), strict=True
    ):
        colour, size, alpha = look
        right.plot(
            *series, "o", markersize=size, markeredgewidth=0, color=colour, alpha=alpha, label=name
        )
    right.set(xlabel="arrival, s", ylabel="time to the first token, s")
    for axes in (left, right):
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--figure: {in_words(error)}") from None
    except ValueError:  # as matplotlib says of a suffix it does not know
        raise ConfigError(f"--figure: expected .svg, .png or .pdf, got {path.name!r}") from None


def _panels(*titles: str) -> tuple[Any, Any]:
    """A figure with one panel a title, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(titles), 3.6), layout="constrained")
    panels = figure.subplots(1, len(titles))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels
