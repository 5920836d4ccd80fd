"""FORMATS: public trace formats -> our rows, one file a format. None of them reads a clock or the network."""

from fairhit_lab.traces.importers.agentic import AGENTIC
from fairhit_lab.traces.importers.azure import AZURE
from fairhit_lab.traces.importers.burstgpt import BURSTGPT
from fairhit_lab.traces.importers.format import Format
from fairhit_lab.traces.importers.mooncake import MOONCAKE
from fairhit_lab.traces.importers.plain_csv import PLAIN_CSV
from fairhit_lab.traces.importers.servegen import SERVEGEN
from fairhit_lab.traces.importers.vtc import VTC

FORMATS: dict[str, Format] = {
    "agentic": AGENTIC,
    "azure": AZURE,
    "burstgpt": BURSTGPT,
    "csv": PLAIN_CSV,
    "mooncake": MOONCAKE,
    "servegen": SERVEGEN,
    "vtc": VTC,
}
