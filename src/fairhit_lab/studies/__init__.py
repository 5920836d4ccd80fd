"""STUDIES: name -> module beside this one, in which `STUDY` is, or `STUDIES` has several by name.

A new study is a row in one of them and a line here. Modules are imported when they are asked for.
"""

from importlib import import_module

from fairhit_lab.studies.shared.study import Study

STUDIES: dict[str, str] = {
    "dlpm-fig1": "dlpm.fig1",
    "dlpm-fig4a": "dlpm.central",
    "dlpm-fig4b": "dlpm.central",
    "dlpm-fig7": "dlpm.fig7",
    "dlpm-fig9": "dlpm.fig9",
    "dlpm-fig8": "dlpm.fig8",
    "dlpm-fig10": "dlpm.fig10",
    "dlpm-fig11": "dlpm.fig11",
    "dlpm-fig12": "dlpm.fig12",
    "fair": "ours.fair",
    "fair-cost": "ours.fair_cost",
    "pareto": "ours.frontiers",
    "pareto-fleet": "ours.frontiers",
    "fleet": "ours.fleet",
    "fleet-memory": "ours.fleet",
    "fleet-hold": "ours.fleet",
    "sensitivity-min-match": "ours.min_match",
    "sensitivity-quantum": "ours.sensitivity",
    "sensitivity-worker-quantum": "ours.sensitivity",
    "variants": "ours.variants",
    "vtc-fig3": "vtc.differences",
    "vtc-fig4": "vtc.rates",
    "vtc-fig5": "vtc.rates",
    "vtc-fig6": "vtc.rates",
    "vtc-fig7": "vtc.differences",
    "vtc-fig8": "vtc.differences",
    "vtc-fig9": "vtc.rates",
    "vtc-fig10": "vtc.rates",
    "vtc-fig12": "vtc.real_trace",
    "vtc-fig13": "vtc.real_trace",
    "vtc-fig14": "vtc.real_trace",
    "vtc-fig15": "vtc.differences",
    "vtc-fig16": "vtc.rates",
    "vtc-fig18": "vtc.real_trace",
    "vtc-fig19": "vtc.differences",
    "vtc-table2": "vtc.tables",
    "vtc-table3": "vtc.tables",
    "vtc-table4": "vtc.tables",
    "vtc-table5": "vtc.tables",
    "vtc-table6": "vtc.tables",
}


def study_of(name: str) -> Study:
    """The study of that name, which must be one of STUDIES."""
    module = import_module(f"fairhit_lab.studies.{STUDIES[name]}")
    study: Study = module.STUDIES[name] if hasattr(module, "STUDIES") else module.STUDY
    return study
