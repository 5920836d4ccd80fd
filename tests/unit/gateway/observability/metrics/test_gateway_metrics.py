"""The metrics: readable by Prometheus, and cheap to read with very many clients."""

import sys
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from fairhit.core.costs import parse_cost
from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules
from fairhit.gateway.observability.metrics.gateway_metrics import GatewayMetrics
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.page.snapshot import SnapshotTaker
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex


def asking(client: str, number: int) -> Request:
    return Request(
        id=str(number), client=client, prompt=(), input_len=7, max_tokens=1, order=number
    )


def busy(*, clients: list[str], workers: int, requests: int) -> Dispatcher:
    made = Dispatcher(router=D2LPM(quantum=100), index=ApproximatePrefixIndex(), max_in_flight=100)
    for number in range(workers):
        made.engine_up(f"http://127.0.0.1:{number}")
    for number, client in enumerate(clients * requests):
        made.started(made.arrive(asking(client, number), model=None, text_len=0))
    return made


def metrics_of(made: Dispatcher) -> GatewayMetrics:
    recorder = Recorder(made)
    return GatewayMetrics(made, recorder, SnapshotTaker(made, recorder, list), list)


def samples(made: Dispatcher) -> dict[tuple[str, tuple[str, ...]], float]:
    text = metrics_of(made).exposition().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_valid_client_name_survives_the_text_format() -> None:
    names = ["plain", 'say "hi"', "back\\slash\\", "\\n", "{a=b}", "é☃"]
    read = samples(busy(clients=names, workers=1, requests=2))

    assert [read["fairhit_requests_total", (name,)] for name in names] == [2.0] * len(names)
    deficits = [
        read["fairhit_worker_deficit_tokens", (name, "http://127.0.0.1:0")] for name in names
    ]
    assert deficits == [100.0 - 2 * 7] * len(names)


def test_full_deficits_are_left_out() -> None:
    read = samples(busy(clients=["a", "b"], workers=4, requests=1))

    assert sum(name == "fairhit_worker_deficit_tokens" for name, _ in read) == 2


def calls(page: Callable[[], bytes]) -> int:
    """Number of function calls, Python's and C's, that a page takes: its cost, equal on every machine."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        content = page()
    finally:
        sys.setprofile(None)
    assert content.count(b"worker_deficit_tokens{") == 8000
    return made


def test_an_engine_without_requests_is_up_by_its_probes() -> None:
    """Draining and open circuits have metrics of their own."""
    made = busy(clients=[], workers=2, requests=0)
    made.set_accepting("http://127.0.0.1:0", accepts=False)
    made.engine_down("http://127.0.0.1:1")
    read = samples(made)

    assert read["fairhit_worker_up", ("http://127.0.0.1:0",)] == 1
    assert read["fairhit_worker_up", ("http://127.0.0.1:1",)] == 0


def test_a_scrape_is_cheap() -> None:
    """The largest number of named clients, all of which have used each of eight engines."""
    clients = [f"client-{n}" for n in range(1000)]
    made = busy(clients=clients, workers=8, requests=1)
    for number, client in enumerate(clients):
        for worker in made.engines:
            made.router.dispatch(asking(client, 1000 + number), worker, extend_len=7)
    observability = metrics_of(made)

    # 6.7 for each line; Prometheus' own client makes 43.
    assert calls(observability.exposition) < 8 * 8000


def test_the_prices_in_force_and_their_source_are_shown() -> None:
    """The pinned ones; a cost without such prices has none."""
    shown = {"output": 3, "context": 0.5, "attention": 0}
    for cost, expected in (("context:3,0.5", shown), ("profiled", {})):
        made = Dispatcher(
            router=D2LPM(),
            index=ApproximatePrefixIndex(),
            rules=QueueRules(scheduler="fair", cost=parse_cost(cost)),
        )
        made.engine_up("w")
        read = {
            labels: value
            for (name, labels), value in samples(made).items()
            if name == "fairhit_queue_price_tokens"
        }

        assert read == {(part, "setting"): price for part, price in expected.items()}
