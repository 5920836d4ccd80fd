"""Format of the shared ledger: JSON that one gateway writes and the others read."""

import msgspec

from fairhit.core.ledgers.shared_deficits import Engines
from fairhit.core.request import ClientId
from fairhit.dispatch import SharedLedger
from fairhit.dispatch.accounting.shared_ledger import PeerGateway

_VERSION = 2


class _Document(msgspec.Struct):
    """`deficits` in units; of each gateway its beats, period in seconds, and waiting clients by engines."""

    version: int
    deficits: dict[ClientId, int]
    gateways: dict[str, tuple[int, float, list[tuple[Engines, list[ClientId]]]]]


_reader = msgspec.json.Decoder(_Document)
_writer = msgspec.json.Encoder()


def write(ledger: SharedLedger) -> bytes:
    """Encode the ledger. O(clients)."""
    gateways = {
        name: (peer.beats, peer.period_s, peer.waiting) for name, peer in ledger.peers.items()
    }
    return _writer.encode(_Document(_VERSION, ledger.deficits, gateways))


def read(encoded: bytes | None) -> SharedLedger:
    """Decode the ledger; a new one if there is none, or a truncated one whose writer died.

    Raises ValueError for another version or another program's document.
    """
    try:
        document = _reader.decode(encoded or b"")
    except msgspec.ValidationError as error:
        raise ValueError(f"not a shared ledger: {error}") from None
    except msgspec.DecodeError:
        return SharedLedger()
    if document.version != _VERSION:
        raise ValueError(f"shared ledger of version {document.version}, expected {_VERSION}")
    peers = {name: PeerGateway(*values) for name, values in document.gateways.items()}
    return SharedLedger(deficits=document.deficits, peers=peers)
