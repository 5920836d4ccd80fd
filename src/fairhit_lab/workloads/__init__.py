"""GENERATORS: name -> workload. Each is a function of a random generator and settings, or a preset of one."""

from fairhit_lab.workloads.adversarial import ADVERSARIAL
from fairhit_lab.workloads.chat import CHAT
from fairhit_lab.workloads.fleet import FLEET
from fairhit_lab.workloads.judge import JUDGE
from fairhit_lab.workloads.long_qa import LONG_QA
from fairhit_lab.workloads.mixed import MIXED
from fairhit_lab.workloads.tiers import TIERS
from fairhit_lab.workloads.tree_of_thoughts import TREE_OF_THOUGHTS
from fairhit_lab.workloads.vtc import VTC
from fairhit_lab.workloads.workload import Workload

GENERATORS: dict[str, Workload] = {
    **VTC,
    **TREE_OF_THOUGHTS,
    **JUDGE,
    **LONG_QA,
    **CHAT,
    **MIXED,
    **TIERS,
    **ADVERSARIAL,
    **FLEET,
}
