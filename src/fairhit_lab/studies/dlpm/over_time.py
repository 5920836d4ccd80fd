"""The clients' curves over time: a row of panels for each metric, in it one for each system."""

from collections.abc import Iterable, Mapping

from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label

# Of docs/reference/summary.md's series: title and label with its unit.
CURVES = {
    "response_time": ("Response time", "seconds to the first token"),
    "service_system": ("Actual service", "extend + 2 x output, tokens/s"),
    "service_client": ("Service", "input + 2 x output, tokens/s"),
}


def over_time(metrics: Iterable[str], systems: Mapping[str, Mapping[str, Label]]) -> list[Panel]:
    """`systems`: the labels of the run that is shown, by the name above the panel."""
    return [
        Panel(
            title=f"{CURVES[metric][0]}: {system}",
            form="lines",
            of="series",
            x="time_s",
            y=metric,
            hue="client",
            where=labels,
            x_label="time, s",
            y_label=CURVES[metric][1],
        )
        for metric in metrics
        for system, labels in systems.items()
    ]
