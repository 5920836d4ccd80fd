"""VTC Table 2: how unequal service is on the real trace, by scheduler."""

from fairhit_lab.metrics.vtc_table import VtcTable
from fairhit_lab.studies.vtc.shared import REAL
from fairhit_lab.studies.vtc.tables import table_study

STUDY = table_study(
    "Service difference on the real trace",
    "Table 2",
    {
        "fcfs": VtcTable(759.97, 433.53, 32112.00, 777),
        "lcf": VtcTable(750.49, 323.82, 29088.90, 778),
        "vtc": VtcTable(368.40, 251.66, 6549.16, 779),
        "vtc-predict": VtcTable(365.47, 240.33, 5321.62, 773),
        "vtc-oracle": VtcTable(329.46, 227.51, 4475.76, 781),
        "rpm-5": VtcTable(143.86, 83.58, 1020.46, 340),
        "rpm-20": VtcTable(446.76, 195.71, 7449.79, 694),
        "rpm-30": VtcTable(693.66, 309.45, 24221.31, 747),
    },
    workload=REAL,
    rows="real",
    with_rows=("fcfs", "lcf", "vtc", "vtc-oracle", "rpm-5", "rpm-20"),
    shows="Max Diff, Avg Diff, Diff Var and throughput of eight schedulers on the real trace: as printed,"
    " simulated, and from the authors' rows",
    takes="quick 8 s; full 35 s",
)
