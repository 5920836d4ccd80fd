"""VTC Table 5: two clients over capacity, by how well VTC foresees the outputs."""

from fairlead.experiments.studies.vtc.tables import FEW, TURNS, table_study
from fairlead.experiments.study.study import Generated
from fairlead.metrics.vtc_table import Table

STUDY = table_study(
    "Service difference of two clients over capacity",
    "Table 5",
    {
        "vtc": Table(192.88, 103.77, 6981.24, 893),
        "vtc-noisy": Table(33.98, 12.54, 111.94, 904),
        "vtc-oracle": Table(5.87, 0.51, 1.71, 895),
    },
    workload=Generated(workload="overload"),
    rows="overload",
    with_rows=("vtc", "vtc-noisy", "vtc-oracle"),
    request=256 + 2 * 256,
    shows="foreseeing outputs, even off by half, brings differences close to nothing",
    takes="quick 2 s; full 12 s",
    notes={"vtc": TURNS, "vtc-noisy": FEW},
)
