"""Demand and service of one client, counted as events arrive; about 400 bytes before its first latency."""

from typing import Any

from fairhit.core.request import ClientId
from fairhit.core.service import WEIGHT_SCALE, Service
from fairhit_lab.events import Reason
from fairhit_lab.metrics.distribution import Distribution
from fairhit_lab.metrics.summary.latency import latency
from fairhit_lab.metrics.summary.locality import Locality


class Tally:
    """Counts of requests and tokens of one client, and how long its requests took.

    `inside` is the service received while all clients were active, counted since `epoch` began.
    """

    __slots__ = (
        "active",
        "again_len",
        "cached_len",
        "cancelled",
        "client",
        "completion",
        "epoch",
        "extend_len",
        "finished",
        "inside",
        "output_len",
        "preempted",
        "rejected",
        "requests",
        "seen",
        "ttft",
        "weight",
    )

    def __init__(self, client: ClientId, weight: int) -> None:
        self.client = client
        self.weight = weight  # in millionths
        self.requests = 0
        self.active = 0  # waiting or running now
        self.seen = False  # dispatched at least once: it belongs to "all clients"
        self.finished = 0
        self.cancelled = 0
        self.preempted = 0
        self.rejected: dict[Reason, int] | None = None
        self.extend_len = 0
        self.cached_len = 0
        self.output_len = 0
        self.again_len = 0
        self.ttft: Distribution | None = None
        self.completion: Distribution | None = None
        self.inside: Service | None = None
        self.epoch = -1

    def reject(self, reason: Reason) -> None:
        """Count a rejected request. O(1)."""
        if self.rejected is None:
            self.rejected = {}
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def inside_since(self, epoch: int) -> Service:
        """Service while all clients are active; zero if that time began anew. O(1)."""
        if self.epoch != epoch or self.inside is None:
            self.epoch = epoch
            self.inside = Service()
        return self.inside

    def service(self) -> Service:
        """Total service of the client."""
        return Service(
            extend_len=self.extend_len, cached_len=self.cached_len, output_len=self.output_len
        )

    def locality(self) -> Locality:
        """Cached and computed tokens of the client."""
        return Locality(self.extend_len, self.cached_len, self.again_len)

    def rejections(self) -> int:
        """Number of rejected requests, for any reason."""
        return sum(self.rejected.values()) if self.rejected else 0

    def unfinished(self) -> int:
        """Number of requests that had neither ended nor been rejected when the run ended."""
        return self.requests - self.finished - self.cancelled - self.rejections()

    def as_dict(self) -> dict[str, Any]:
        """The client's fields of the summary."""
        return {
            "weight": self.weight / WEIGHT_SCALE,
            "requests": self.requests,
            "finished": self.finished,
            "rejected": dict(sorted((self.rejected or {}).items())),
            "cancelled": self.cancelled,
            "unfinished": self.unfinished(),
            "preemptions": self.preempted,
            "tokens": tokens(self.service()),
            "service": views(self.service()),
            "service_by_weight": views(self.service(), self.weight),
            "hit_rate": self.locality().hit_rate(),
            "recomputed_tokens": self.again_len,
            "ttft": latency(self.ttft),
            "completion": latency(self.completion),
        }


def tokens(service: Service) -> dict[str, int]:
    """Tokens by kind; input is extend and cached together."""
    return {
        "extend": service.extend_len,
        "cached": service.cached_len,
        "input": service.input_len,
        "output": service.output_len,
    }


def views(service: Service, weight: int = WEIGHT_SCALE) -> dict[str, float]:
    """Service in both views, divided by a weight in millionths."""
    return {
        "system": service.system_view() * WEIGHT_SCALE / weight,
        "client": service.client_view() * WEIGHT_SCALE / weight,
    }
