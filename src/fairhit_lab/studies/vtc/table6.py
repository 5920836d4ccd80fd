"""VTC Table 6: eight clients over capacity, by how well VTC foresees the outputs."""

from fairhit_lab.metrics.vtc_table import VtcTable
from fairhit_lab.studies.shared.study import Generated
from fairhit_lab.studies.vtc.tables import table_study

STUDY = table_study(
    "Service difference of eight clients over capacity",
    "Table 6",
    {
        "vtc": VtcTable(322.16, 162.20, 5151.49, 875),
        "vtc-noisy": VtcTable(99.43, 66.32, 487.10, 875),
        "vtc-oracle": VtcTable(43.23, 36.34, 56.52, 875),
    },
    workload=Generated(workload="overload-multi"),
    rows="overload-multi",
    with_rows=(),
    request=256 + 2 * 256,
    shows="Max Diff, Avg Diff, Diff Var and throughput of VTC that does not foresee outputs, foresees them"
    " to within a half, and exactly; eight clients",
    takes="quick 2 s; full 10 s",
)
