"""The account as bytes: what one gateway writes and the others read, as JSON."""

import msgspec

from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch import SharedLedger
from fairhit.dispatch.accounting.shared_ledger import PeerGateway

_VERSION = 1


class _Written(msgspec.Struct):
    """`deficits` in units; of each gateway its reports so far, seconds between them, and who waits there."""

    version: int
    deficits: dict[WorkerId, dict[ClientId, int]]
    gateways: dict[str, tuple[int, float, dict[WorkerId, list[ClientId]]]]


_reader = msgspec.json.Decoder(_Written)
_writer = msgspec.json.Encoder()


def write(accounts: SharedLedger) -> bytes:
    """O(clients)."""
    gateways = {
        name: (peer.beats, peer.period_s, peer.waiting) for name, peer in accounts.peers.items()
    }
    return _writer.encode(_Written(_VERSION, accounts.deficits, gateways))


def read(written: bytes | None) -> SharedLedger:
    """A new account where there is none, or half of one, whose writer died. Raises ValueError.

    That is for what others have written: another version of ours, or somebody else.
    """
    try:
        document = _reader.decode(written or b"")
    except msgspec.ValidationError as error:
        raise ValueError(f"it is no account: {error}") from None
    except msgspec.DecodeError:
        return SharedLedger()
    if document.version != _VERSION:
        raise ValueError(f"the account is of version {document.version}, not {_VERSION}")
    peers = {name: PeerGateway(*told) for name, told in document.gateways.items()}
    return SharedLedger(deficits=document.deficits, peers=peers)
