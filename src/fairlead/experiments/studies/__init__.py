"""STUDIES: name -> module beside this one, in which `STUDY` is. A new study is a file and a line here.

Modules are imported when they are asked for.
"""

from importlib import import_module

from fairlead.experiments.study import Study

STUDIES: dict[str, str] = {
    "dlpm-fig1": "dlpm_fig1",
    "dlpm-fig4a": "dlpm_fig4a",
    "dlpm-fig4b": "dlpm_fig4b",
    "dlpm-fig7": "dlpm_fig7",
    "dlpm-fig9": "dlpm_fig9",
    "dlpm-fig8": "dlpm_fig8",
    "dlpm-fig10": "dlpm_fig10",
    "dlpm-fig11": "dlpm_fig11",
    "dlpm-fig12": "dlpm_fig12",
    "pareto": "pareto",
    "pareto-fleet": "pareto_fleet",
    "sensitivity-min-match": "sensitivity_min_match",
    "sensitivity-quantum": "sensitivity_quantum",
    "sensitivity-worker-quantum": "sensitivity_worker_quantum",
    "variants": "variants",
    "vtc-fig3": "vtc_fig3",
    "vtc-fig4": "vtc_fig4",
    "vtc-fig5": "vtc_fig5",
    "vtc-fig6": "vtc_fig6",
    "vtc-fig7": "vtc_fig7",
    "vtc-fig8": "vtc_fig8",
    "vtc-fig9": "vtc_fig9",
    "vtc-fig10": "vtc_fig10",
    "vtc-fig12": "vtc_fig12",
    "vtc-fig13": "vtc_fig13",
    "vtc-fig14": "vtc_fig14",
    "vtc-fig15": "vtc_fig15",
    "vtc-fig16": "vtc_fig16",
    "vtc-fig18": "vtc_fig18",
    "vtc-fig19": "vtc_fig19",
    "vtc-table2": "vtc_table2",
    "vtc-table3": "vtc_table3",
    "vtc-table4": "vtc_table4",
    "vtc-table5": "vtc_table5",
    "vtc-table6": "vtc_table6",
}


def study_of(name: str) -> Study:
    """The study of that name, which must be one of STUDIES."""
    study: Study = import_module(f"fairlead.experiments.studies.{STUDIES[name]}").STUDY
    return study
