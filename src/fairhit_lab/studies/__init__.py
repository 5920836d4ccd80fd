"""STUDIES: name -> module beside this one, in which `STUDY` is. A new study is a file and a line here.

Modules are imported when they are asked for.
"""

from importlib import import_module

from fairhit_lab.studies.shared.study import Study

STUDIES: dict[str, str] = {
    "dlpm-fig1": "dlpm.fig1",
    "dlpm-fig4a": "dlpm.fig4a",
    "dlpm-fig4b": "dlpm.fig4b",
    "dlpm-fig7": "dlpm.fig7",
    "dlpm-fig9": "dlpm.fig9",
    "dlpm-fig8": "dlpm.fig8",
    "dlpm-fig10": "dlpm.fig10",
    "dlpm-fig11": "dlpm.fig11",
    "dlpm-fig12": "dlpm.fig12",
    "pareto": "ours.pareto",
    "pareto-fleet": "ours.pareto_fleet",
    "sensitivity-min-match": "ours.sensitivity_min_match",
    "sensitivity-quantum": "ours.sensitivity_quantum",
    "sensitivity-worker-quantum": "ours.sensitivity_worker_quantum",
    "variants": "ours.variants",
    "vtc-fig3": "vtc.fig3",
    "vtc-fig4": "vtc.fig4",
    "vtc-fig5": "vtc.fig5",
    "vtc-fig6": "vtc.fig6",
    "vtc-fig7": "vtc.fig7",
    "vtc-fig8": "vtc.fig8",
    "vtc-fig9": "vtc.fig9",
    "vtc-fig10": "vtc.fig10",
    "vtc-fig12": "vtc.fig12",
    "vtc-fig13": "vtc.fig13",
    "vtc-fig14": "vtc.fig14",
    "vtc-fig15": "vtc.fig15",
    "vtc-fig16": "vtc.fig16",
    "vtc-fig18": "vtc.fig18",
    "vtc-fig19": "vtc.fig19",
    "vtc-table2": "vtc.table2",
    "vtc-table3": "vtc.table3",
    "vtc-table4": "vtc.table4",
    "vtc-table5": "vtc.table5",
    "vtc-table6": "vtc.table6",
}


def study_of(name: str) -> Study:
    """The study of that name, which must be one of STUDIES."""
    study: Study = import_module(f"fairhit_lab.studies.{STUDIES[name]}").STUDY
    return study
