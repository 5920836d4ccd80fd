"""GENERATORS: name -> workload. Each is a function of a random generator and settings, or a preset of one."""

from fairlead.workloads.generators.adversarial import ADVERSARIAL
from fairlead.workloads.generators.chat import CHAT
from fairlead.workloads.generators.fleet import FLEET
from fairlead.workloads.generators.judge import JUDGE
from fairlead.workloads.generators.long_qa import LONG_QA
from fairlead.workloads.generators.mixed import MIXED
from fairlead.workloads.generators.tiers import TIERS
from fairlead.workloads.generators.tree_of_thoughts import TREE_OF_THOUGHTS
from fairlead.workloads.generators.vtc import VTC
from fairlead.workloads.generators.workload import Workload

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
