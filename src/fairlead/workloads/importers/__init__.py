"""FORMATS: public trace formats -> our rows, one file a format. None of them reads a clock or the network."""

from fairlead.workloads.importers.agentic import AGENTIC
from fairlead.workloads.importers.azure import AZURE
from fairlead.workloads.importers.burstgpt import BURSTGPT
from fairlead.workloads.importers.format import Format
from fairlead.workloads.importers.mooncake import MOONCAKE
from fairlead.workloads.importers.plain_csv import PLAIN_CSV
from fairlead.workloads.importers.servegen import SERVEGEN
from fairlead.workloads.importers.vtc import VTC

FORMATS: dict[str, Format] = {
    "agentic": AGENTIC,
    "azure": AZURE,
    "burstgpt": BURSTGPT,
    "csv": PLAIN_CSV,
    "mooncake": MOONCAKE,
    "servegen": SERVEGEN,
    "vtc": VTC,
}
