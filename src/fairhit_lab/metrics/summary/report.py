"""The counts of a Summary as the JSON object that docs/reference/summary.md describes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from textwrap import indent
from typing import Any

from fairhit.core.ledgers.entitlement import entitlements
from fairhit.core.request import ClientId
from fairhit.core.service import Service
from fairhit_lab.metrics.distribution import Distribution
from fairhit_lab.metrics.gaps import MAX_TRACKED, Bound, PairGaps, worst
from fairhit_lab.metrics.summary.latency import Programs, in_seconds, latency
from fairhit_lab.metrics.summary.locality import Locality, together
from fairhit_lab.metrics.summary.tally import Tally, tokens, views

VERSION = 1
NEVER = 1 << 62


@dataclass(slots=True)
class RunTotals:
    """Counts that belong to no single client or worker. Times in microseconds, lengths in tokens."""

    begin_us: int = NEVER  # the first start of a request
    end_us: int = 0  # the last thing that happened
    last_finish_us: int = 0
    finished_input: int = 0
    finished_output: int = 0
    longest_input: int = 0
    passes_with_refill: int = 0
    refill_rounds: int = 0
    evicted_len: int = 0


def schema_of_summary() -> dict[str, Any]:
    """The JSON Schema of what `report` returns, as it is shipped with the package."""
    text = (
        files("fairhit_lab.metrics.summary")
        .joinpath("summary.schema.json")
        .read_text(encoding="utf-8")
    )
    schema: dict[str, Any] = json.loads(text)
    return schema


def report(
    *,
    totals: RunTotals,
    end_us: int,
    interrupted: bool,
    tallies: Mapping[ClientId, Tally],
    demands: Mapping[ClientId, int],
    idle_us: Mapping[int, int],
    epoch: int,
    all_active_us: int,
    pairs: PairGaps,
    bound: Bound,
    programs: Programs,
    tpot: Distribution,
) -> dict[str, Any]:
    """Make the whole object. Keys stand in a fixed order, clients in order of appearance.

    The clients are ClientRows: a caller that keeps the report or serialises it makes a dict of them.
    """
    everyone = tallies.values()
    begin_us = min(totals.begin_us, end_us)
    shares = entitlement_shares(tallies, demands)
    return {
        "version": VERSION,
        "interrupted": interrupted,
        "begin_s": in_seconds(begin_us),
        "end_s": in_seconds(end_us),
        "makespan_s": in_seconds(max(0, totals.last_finish_us - begin_us)),
        "requests": _requests(everyone),
        "tokens": tokens(_all_service(everyone)),
        "service": views(_all_service(everyone)),
        "throughput": _throughput(totals, everyone, max(0, totals.last_finish_us - begin_us)),
        "locality": together(
            [*(tally.locality() for tally in everyone), Locality(evicted_len=totals.evicted_len)]
        ).as_dict(),
        "ttft": latency(_merged(tally.ttft for tally in everyone)),
        "completion": latency(_merged(tally.completion for tally in everyone)),
        "time_per_output_token": latency(tpot),
        "programs": _programs(programs),
        "entitlement": {
            "worst_share": min(shares.values(), default=None),
            "jain": _jain_index(list(shares.values())),
        },
        "jain": _jain(everyone, epoch, all_active_us),
        "gaps": _gaps(pairs, bound, totals.longest_input, tallies),
        "refills": {"passes": totals.passes_with_refill, "rounds": totals.refill_rounds},
        "idle_with_work_s": {
            "total": in_seconds(sum(idle_us.values())),
            "workers": {str(number): in_seconds(idle) for number, idle in idle_us.items()},
        },
        "clients": ClientRows(tallies, shares),
    }


def entitlement_shares(
    tallies: Mapping[ClientId, Tally], demands: Mapping[ClientId, int]
) -> dict[ClientId, float]:
    """Return x_i / phi_i of each client with a known demand, in the client view. O(n log n)."""
    served = {
        client: tallies[client].service().client_view() for client in demands if client in tallies
    }
    # What a failed engine emitted twice was served beyond the demand.
    asked = {client: max(demands[client], service) for client, service in served.items()}
    entitled = entitlements(
        [(client, asked[client], tallies[client].weight) for client in served if demands[client]],
        sum(served[client] for client in served if demands[client]),
    )
    return {client: served[client] / phi for client, phi in entitled.items() if phi}


class ClientRows(Mapping[ClientId, dict[str, Any]]):
    """The report's rows of clients, each made when it is read: 100,000 at once would take 250 MB."""

    def __init__(self, tallies: Mapping[ClientId, Tally], shares: Mapping[ClientId, float]) -> None:
        self._tallies = tallies
        self._shares = shares

    def __getitem__(self, client: ClientId) -> dict[str, Any]:
        return self._tallies[client].as_dict() | {"entitlement_share": self._shares.get(client)}

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._tallies)

    def __len__(self) -> int:
        return len(self._tallies)


def json_of(report: Mapping[str, Any]) -> Iterator[str]:
    """Serialise a report in parts; beyond the first, none is longer than one client's row."""
    others = {name: value for name, value in report.items() if name != "clients"}
    yield json.dumps(others, indent=2)[: -len("\n}")] + ',\n  "clients": {'
    between = "\n"
    for client, row in report["clients"].items():
        member = json.dumps({client: row}, indent=2)[len("{\n") : -len("\n}")]
        yield between + indent(member, "  ")
        between = ",\n"
    yield "}\n}\n" if between == "\n" else "\n  }\n}\n"


def _requests(everyone: Iterable[Tally]) -> dict[str, Any]:
    rejected: dict[str, int] = {}
    for tally in everyone:
        for reason, count in (tally.rejected or {}).items():
            rejected[reason] = rejected.get(reason, 0) + count
    return {
        "total": sum(tally.requests for tally in everyone),
        "finished": sum(tally.finished for tally in everyone),
        "rejected": dict(sorted(rejected.items())),
        "cancelled": sum(tally.cancelled for tally in everyone),
        "unfinished": sum(tally.unfinished() for tally in everyone),
        "preemptions": sum(tally.preempted for tally in everyone),
    }


def _all_service(everyone: Iterable[Tally]) -> Service:
    return Service(
        extend_len=sum(tally.extend_len for tally in everyone),
        cached_len=sum(tally.cached_len for tally in everyone),
        output_len=sum(tally.output_len for tally in everyone),
    )


def _throughput(
    totals: RunTotals, everyone: Iterable[Tally], makespan_us: int
) -> dict[str, float | None]:
    """Of finished requests, over the makespan; None where nothing finished."""
    amounts = {
        "tokens_per_s": totals.finished_input + totals.finished_output,
        "service_per_s": totals.finished_input + 2 * totals.finished_output,
        "requests_per_s": sum(tally.finished for tally in everyone),
    }
    if not makespan_us:
        return dict.fromkeys(amounts)
    return {name: amount * 10**6 / makespan_us for name, amount in amounts.items()}


def _merged(parts: Iterable[Distribution | None]) -> Distribution:
    whole = Distribution()
    for part in parts:
        if part is not None:
            whole.merge(part)
    return whole


def _programs(programs: Programs) -> dict[str, Any]:
    by_client = programs.completions()
    whole = _merged(by_client.values())
    return {
        "count": len(programs),
        "complete": whole.count,
        "completion": latency(whole),
        "clients": {client: latency(samples) for client, samples in by_client.items()},
    }


def _jain(everyone: Iterable[Tally], epoch: int, all_active_us: int) -> dict[str, Any]:
    """Over service divided by weight, while every client that was ever dispatched is active."""
    seen = [tally for tally in everyone if tally.seen]
    shares = [views(tally.inside_since(epoch), tally.weight) for tally in seen]
    return {
        "clients": len(seen),
        "all_active_s": in_seconds(all_active_us),
        "system": _jain_index([share["system"] for share in shares]),
        "client": _jain_index([share["client"] for share in shares]),
    }


def _gaps(
    pairs: PairGaps, bound: Bound, longest_input: int, tallies: Mapping[ClientId, Tally]
) -> dict[str, Any]:
    rows = [
        {
            "clients": list(pair),
            "gap": pairs.largest[pair].tokens,
            "bound": bound.between(longest_input, *(tallies[client].weight for client in pair)),
            "worker": pairs.largest[pair].worker,
        }
        for pair in worst(pairs.largest)
    ]
    return {
        "view": bound.view,
        "by_weight": pairs.weighted,
        "tracked": len(pairs.scales),
        "untracked": max(0, len(tallies) - len(pairs.scales)),
        "max_tracked": MAX_TRACKED,
        "no_bound_because": bound.reason or None,
        "worst": rows[0] if rows else None,
        "pairs": rows,
    }


def _jain_index(rates: Sequence[float]) -> float | None:
    """(sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has all; None if all are 0."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None
