"""STUDIES: name -> module beside this one, in which `STUDY` is. A new study is a file and a line here.

Modules are imported when they are asked for.
"""

from importlib import import_module

from fairlead.experiments.study import Study

STUDIES: dict[str, str] = {
    "dlpm-fig1": "dlpm_fig1",
    "dlpm-fig7": "dlpm_fig7",
    "dlpm-fig9": "dlpm_fig9",
    "pareto": "pareto",
    "pareto-fleet": "pareto_fleet",
    "sensitivity-quantum": "sensitivity_quantum",
}


def study_of(name: str) -> Study:
    """The study of that name, which must be one of STUDIES."""
    study: Study = import_module(f"fairlead.experiments.studies.{STUDIES[name]}").STUDY
    return study
