"""What each client has received, of a bounded number of clients."""

from fairhit.core.request import ClientId
from fairhit.core.service import Service


class ServiceTable:
    """The last `max_clients` that were served have a record each; the longest unserved goes to `others`."""

    def __init__(self, *, max_clients: int) -> None:
        self.others = Service()
        self._max_clients = max_clients
        self._services: dict[ClientId, Service] = {}  # longest unserved first

    def of(self, client: ClientId) -> Service:
        """What the client has received; nothing, if it has no record. O(1)."""
        return self._services.get(client) or Service()

    def record(self, client: ClientId) -> Service:
        """The client's service, to be added to; it is now the most recently used. O(1)."""
        services = self._services
        service = services.pop(client, None)
        if service is None:
            service = Service()
            if len(services) >= self._max_clients:
                self.others.absorb(services.pop(next(iter(services))))
        services[client] = service
        return service
