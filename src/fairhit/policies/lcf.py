"""Least counter first (LCF): VTC without the lift, as its paper compares with (section 5.1).

Who was away, or is new, is served alone until it has caught up with all that the others have ever
received. That is the fault the lift repairs.
"""

from fairhit.core.request import ClientId
from fairhit.policies.vtc import VTC


class LCF(VTC):
    """The client that has received least since the start first; its oldest request first."""

    def _lift(self, client: ClientId) -> None:
        """Nobody is lifted: a new client starts at 0."""
        if client not in self._counters:
            self._counters.admit(client, 0)

    def _may_forget(self, client: ClientId) -> bool:
        """Only who has received nothing: starting again at 0 would forgive anything else."""
        return client not in self._lines and self._counter(client) == 0
