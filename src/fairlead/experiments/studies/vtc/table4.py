"""VTC Table 4: two clients over capacity, where requests cost what they were measured to take."""

from fairlead.experiments.studies.vtc.tables import TURNS, table_study
from fairlead.experiments.study.study import Generated
from fairlead.metrics.vtc_table import Table, profiled

STUDY = table_study(
    "Service difference of two clients over capacity, profiled cost",
    "Table 4",
    {
        "fcfs": Table(323.18, 317.13, 15.98, 876),
        "vtc": Table(137.27, 74.87, 2819.40, 900),
        "vtc-oracle": Table(4.28, 0.34, 0.91, 893),
    },
    workload=Generated(workload="overload"),
    rows="overload",
    with_rows=("fcfs",),
    worth="profiled",
    request=profiled(256, 256),
    shows="with a quadratic cost VTC shares equally, too",
    takes="quick 2 s; full 12 s",
    notes={"vtc": TURNS},
)
