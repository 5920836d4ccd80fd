"""VTC Table 4: two clients over capacity, where requests cost what they were measured to take."""

from fairhit_lab.metrics.vtc_table import VtcTable, profiled
from fairhit_lab.studies.shared.study import Case, Generated
from fairhit_lab.studies.vtc.shared import measured, simulated
from fairhit_lab.studies.vtc.tables import table_study

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
        "fcfs": VtcTable(323.18, 317.13, 15.98, 876),
        "vtc": VtcTable(137.27, 74.87, 2819.40, 900),
        "vtc-oracle": VtcTable(4.28, 0.34, 0.91, 893),
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
