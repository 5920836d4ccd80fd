"""The account as bytes: what one gateway writes and the others read, as JSON.

{"version": 1, "deficits": {engine: {client: units}}, "gateways": {name: [beats, {engine: [client]}]}}
"""

import orjson

from fairlead.dispatch import Accounts
from fairlead.dispatch.accounts import Peer

_VERSION = 1


def write(accounts: Accounts) -> bytes:
    """O(clients)."""
    gateways = {name: (peer.beats, peer.waiting) for name, peer in accounts.peers.items()}
    return orjson.dumps({"version": _VERSION, "deficits": accounts.deficits, "gateways": gateways})


def read(written: bytes | None) -> Accounts:
    """A new account where there is none, or half of one, whose writer died. Raises ValueError.

    That is for what others have written: another version of ours, or somebody else.
    """
    try:
        document = orjson.loads(written or b"")
    except orjson.JSONDecodeError:
        return Accounts()
    try:
        if document["version"] != _VERSION:
            raise ValueError(f"it is of version {document['version']!r}, not {_VERSION}")
        deficits = {
            str(worker): {str(client): int(units) for client, units in owed.items()}
            for worker, owed in document["deficits"].items()
        }
        peers = {
            str(name): Peer(
                int(beats), {str(worker): list(map(str, who)) for worker, who in waiting.items()}
            )
            for name, (beats, waiting) in document["gateways"].items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it is no account: {type(error).__name__}") from None
    return Accounts(deficits=deficits, peers=peers)
