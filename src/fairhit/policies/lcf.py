"""Least counter first (LCF): VTC without the lift, as its paper compares with (section 5.1).

A client that was away, or is new, is served alone until it has received as much as each of the
others since the start. The lift of VTC repairs that fault.
"""

from fairhit.core.request import ClientId
from fairhit.policies.vtc import VTC


class LCF(VTC):
    """The client that has received least since the start first; its oldest request first."""

    def _lift(self, client: ClientId) -> None:
        """Start a new client at 0, and lift no other."""
        if client not in self.ledger:
            self.ledger.lift(client, 0)

    def _may_forget(self, client: ClientId) -> bool:
        """Return whether the client received nothing: starting at 0 would forgive anything else."""
        return client not in self._queues and self.ledger.value(client) == 0
