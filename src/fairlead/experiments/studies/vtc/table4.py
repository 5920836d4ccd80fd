"""VTC Table 4: two clients over capacity, where requests cost what they were measured to take."""

from fairlead.experiments.studies.vtc.shared import measured, simulated
from fairlead.experiments.studies.vtc.tables import table_study
from fairlead.experiments.study.study import Case, Generated
from fairlead.metrics.vtc_table import Table, profiled

# The authors' run under FCFS has 600 s of requests, those under VTC have 360 s.
LONGER = Generated(workload="overload", settings={"duration": 600})
OTHERS: list[Case] = [
    simulated("fcfs", LONGER, labels={"scheduler": "fcfs (600 s)"}, worth="profiled", shown=()),
    # Their runs with this cost are not among the rows that are shipped, so these charge linearly.
    *(
        measured("vtc", run, labels={"scheduler": f"vtc ({how})"}, worth="profiled", shown=())
        for run, how in (("overload", "linear"), ("overload_600s", "linear, 600 s"))
    ),
]

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
    shows="Max Diff, Avg Diff, Diff Var and throughput of FCFS, VTC and VTC that foresees outputs, two"
    " clients, where service is worth the quadratic cost that was profiled",
    takes="quick 3 s; full 12 s",
    others=OTHERS,
)
