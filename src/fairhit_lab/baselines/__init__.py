"""Policies and routers that exist to be compared with, beside those that serve."""

from fairhit.core.policy import Policy, Router
from fairhit.policies import ON_UNFIT, SCHEDULERS, WITHOUT_CREDIT
from fairhit.routers import ROUTERS
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.baselines.central_fair import CentralFair
from fairhit_lab.baselines.client_round_robin import ClientRoundRobin
from fairhit_lab.baselines.justitia import Justitia
from fairhit_lab.baselines.k_lpm import KLPM
from fairhit_lab.baselines.las import LAS
from fairhit_lab.baselines.preble import Preble, PrebleRatio
from fairhit_lab.baselines.rpm import RPM
from fairhit_lab.baselines.vtc_noisy import VTCNoisy
from fairhit_lab.baselines.vtc_oracle import VTCOracle
from fairhit_lab.baselines.wsc import WSC

# Not offered in engines: a limit over the whole cluster, outputs known beforehand, others' schedulers.
SIMULATED_ONLY: dict[str, type[Policy]] = {
    "rpm": RPM,
    "vtc-oracle": VTCOracle,
    "vtc-noisy": VTCNoisy,
    "k-lpm": KLPM,
    "wsc": WSC,
    "las": LAS,
    "justitia": Justitia,
}
ALL_SCHEDULERS = SCHEDULERS | SIMULATED_ONLY
ALL_ON_UNFIT = ON_UNFIT | dict.fromkeys(SIMULATED_ONLY, "stop")
ALL_WITHOUT_CREDIT = WITHOUT_CREDIT | {"rpm", "k-lpm", "justitia"}

ALL_ROUTERS: dict[str, type[Router]] = {
    **ROUTERS,
    "client-round-robin": ClientRoundRobin,
    "preble": Preble,
    "preble-ratio": PrebleRatio,
}
# The gateway's queue (`fairhit.dispatch`): a request is sent to an engine when that has capacity.
FLEET = "fleet"
# Assign nothing on arrival: every worker asks the router for work.
CENTRAL_ROUTERS: dict[str, type[CentralDLPM]] = {
    "central-dlpm": CentralDLPM,
    "central-fair": CentralFair,
}
