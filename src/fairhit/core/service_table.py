"""The service of each client, for a bounded number of clients."""

from fairhit.core.request import ClientId
from fairhit.core.service import Service


class ServiceTable:
    """A record for each of the `max_clients` clients served last; older ones are added up in `others`."""

    def __init__(self, *, max_clients: int) -> None:
        self.others = Service()
        self._max_clients = max_clients
        self._services: dict[ClientId, Service] = {}  # longest unserved first

    def of(self, client: ClientId) -> Service:
        """Return the client's service; an empty one if the client has no record. O(1)."""
        return self._services.get(client) or Service()

    def record(self, client: ClientId) -> Service:
        """Return the client's record, to be added to; the client is now the one served last. O(1)."""
        services = self._services
        service = services.pop(client, None)
        if service is None:
            service = Service()
            if len(services) >= self._max_clients:
                self.others.absorb(services.pop(next(iter(services))))
        services[client] = service
        return service
