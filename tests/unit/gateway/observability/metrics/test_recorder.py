"""Statistics of finished requests, and the metrics made of them."""

from tests.unit.gateway.observability.watched import WORKER, Watched

from fairhit.dispatch import Usage
from fairhit.gateway.observability.metrics.histogram import Histogram
from fairhit.gateway.observability.metrics.recorder import MAX_MODELS
from fairhit.gateway.observability.page.snapshot import ALL_ENGINES


def test_a_value_on_a_bound_is_in_the_bucket_below_it():
    histogram = Histogram((10, 20))
    for value in (0, 10, 11, 20, 21, 10**9):
        histogram.observe(value)

    assert (histogram.buckets, histogram.sum) == ([2, 2, 2], 10**9 + 62)


def test_a_request_is_counted_in_every_metric_about_it():
    """Arrived at 10, sent at 10.5, first byte at 11, ended at 12 with 5 tokens: 0.25 s for each of four."""
    watched = Watched()
    watched.finish(watched.arrive("a"))
    read = watched.read()

    assert read["fairhit_request_total", "200", "m"] == 1
    assert ("fairhit_request_error_total", "200", "m") not in read
    for name, value in (
        ("request_duration_seconds", 2.0),
        ("request_ttft_seconds", 1.0),
        ("request_streaming_tpot_seconds", 0.25),
        ("request_input_tokens", 50),
        ("request_cached_tokens", 32),
        ("request_output_tokens", 5),
    ):
        assert read[f"fairhit_{name}_count", "m"] == 1
        assert read[f"fairhit_{name}_sum", "m"] == value
    assert read["fairhit_client_wait_seconds_sum", "a"] == 0.5
    assert read["fairhit_client_wait_seconds_bucket", "a", "0.25"] == 0
    assert read["fairhit_client_wait_seconds_bucket", "a", "0.5"] == 1
    assert read["fairhit_client_service_tokens_total", "a"] == 18 + 2 * 5
    assert read["fairhit_client_cached_ratio", "a"] == 32 / 50


def test_a_failure_is_counted_as_an_error_and_in_no_length():
    watched = Watched()
    watched.dispatcher.engine_up(WORKER, models=["m"])
    watched.fail(watched.arrive("a"), status=502)
    read = watched.read()

    assert read["fairhit_request_error_total", "502", "m"] == 1
    assert read["fairhit_request_duration_seconds_count", "m"] == 1
    assert read["fairhit_request_input_tokens_count", "m"] == 0


def test_an_invented_model_is_no_label():
    """If no engine lists its models, a name counts once a request for it was answered."""
    watched = Watched()
    watched.finish(watched.arrive("a", model="real"))
    for number in range(3):
        watched.fail(watched.arrive("a", model=f"made-up-{number}"), status=404)
    watched.fail(watched.arrive("a", model="real"), status=404)
    read = watched.read()

    codes = {key[1:]: value for key, value in read.items() if key[0] == "fairhit_request_total"}
    assert codes == {("200", "real"): 1, ("404", "real"): 1, ("404", "other"): 3}


def test_the_number_of_labels_is_limited():
    """A thousand clients and models become three clients and a hundred models."""
    watched = Watched(named=2)
    for number in range(1000):
        watched.finish(watched.arrive(f"c{number}", model=f"m{number}"))
    read = watched.read()
    models = {key[2] for key in read if key[0] == "fairhit_request_total"}

    assert set(watched.recorder.clients) == {"c0", "c1", "other"}
    assert len(models) == MAX_MODELS + 1 and "other" in models
    assert read["fairhit_client_wait_seconds_count", "other"] == 998


def test_waiting_clients_have_a_queue_size_and_a_credit():
    watched = Watched(limit=1)
    watched.arrive("a", input_len=30)
    watched.arrive("a")
    watched.arrive("b")
    read = watched.read()

    assert read["fairhit_flow_control_queue_size",] == 2
    assert [read["fairhit_client_queue_size", name] for name in "ab"] == [1, 1]
    assert read["fairhit_client_deficit_tokens", "a"] == -30 + 100
    assert read["fairhit_request_running",] == 1


def test_the_gap_of_two_waiting_clients_stays_below_its_bound():
    """A concurrency limit of 1; the requests of a are longer, but both clients get the same service."""
    watched = Watched(limit=1)
    waiting = {client: [watched.arrive(client) for _ in range(12)] for client in "ab"}
    served: list[int] = []
    for second in range(8):
        watched.snapshots.take(time_s=second, took_s=1.0)
        sent = next(t for line in waiting.values() for t in line if t.worker)
        waiting[sent.request.client].remove(sent)
        watched.finish(sent, output_len=10 if sent.request.client == "a" else 5)
        served.append(sent.request.client == "a")
    watched.snapshots.take(time_s=9, took_s=1.0)
    (seen,) = watched.snapshots.gaps

    assert any(served) and not all(served)
    assert {seen.gap.first, seen.gap.second} == {"a", "b"}
    assert seen.bound is not None and 0 < seen.gap.tokens <= seen.bound
    assert watched.snapshots.violations == 0
    read = watched.read()
    assert read["fairhit_service_gap_tokens", ALL_ENGINES] == seen.gap.tokens
    assert read["fairhit_client_service_gap_tokens", "a"] == seen.gap.tokens


def test_samples_add_up_to_the_service():
    """Service of a running request appears while it grows, and is counted once."""
    watched = Watched()
    first, second = watched.arrive("a"), watched.arrive("b")
    watched.snapshots.take(time_s=0, took_s=1.0)
    watched.dispatcher.started(first)
    watched.dispatcher.emitted(first, 7)
    one = watched.snapshots.take(time_s=1, took_s=1.0)
    watched.dispatcher.finished(first, Usage(50, 9, 0), ran_us=1)
    watched.finish(second)
    two = watched.snapshots.take(time_s=2, took_s=1.0)

    assert one["clients"]["a"] == [2 * 7, 0, 0, 0, 0, 1]
    assert two["clients"]["a"] == [2 * 2, 50, 0, 9, 0, 0]
    assert two["clients"]["b"][1:] == [18, 32, 5, 0, 0]
