"""The replicas' caches as the router knows them, and when."""

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.routing.fleet_view import FleetView
from fairhit_lab.traces.trace import TraceRow

PROMPT = Runs([("p", 0, 10)])


def request(prompt: Runs = PROMPT) -> Request:
    return Request(id="r", client="a", prompt=prompt, input_len=len(prompt), max_tokens=1, order=0)


def cached(tree: RadixTree, prompt: Runs) -> None:
    tree.release(tree.insert(tree.acquire(prompt, 0), prompt, 0))


def test_events_are_delayed() -> None:
    """Cached at 0, evicted at 40; with a delay of 100 both are known 100 later."""
    kernel, tree = Kernel(), RadixTree()
    view = FleetView(kernel=kernel, delay_us=100)
    view.add_worker("w", tree)
    longer = request(Runs([("p", 0, 20)]))
    seen: dict[int, int] = {}
    cached(tree, PROMPT)
    kernel.at(40, 0, tree.evict, 10)
    for time_us in (99, 100, 139, 140):
        # A large priority: after the events of that instant.
        kernel.at(
            time_us, 1 << 60, lambda at: seen.update({at: view.matches(longer).of("w")}), time_us
        )
    kernel.run()

    assert seen == {99: 0, 100: 10, 139: 10, 140: 0}


def test_what_was_sent_is_expected_at_once_and_until_it_ends() -> None:
    view = FleetView(kernel=Kernel(), delay_us=0)
    view.add_worker("w", RadixTree())
    sent = request()
    view.sent(sent, "w")

    assert view.matches(sent).of("w") == 9  # the last token is always computed
    view.ended(sent, "w")
    assert view.matches(sent).of("w") == 0


def test_the_delayed_events_of_a_lost_worker_are_dropped() -> None:
    """The worker is added again, empty, before its events are due: none of them counts."""
    kernel, first = Kernel(), RadixTree()
    view = FleetView(kernel=kernel, delay_us=100)
    view.add_worker("w", first)
    cached(first, PROMPT)
    view.remove_worker("w")
    view.add_worker("w", RadixTree())
    kernel.run()

    assert view.matches(request(Runs([("p", 0, 20)]))).of("w") == 0


def rows() -> list[TraceRow]:
    """Forty conversations of four turns, each the one before and 30 tokens more."""
    return [
        TraceRow(
            id=f"{talk}-{turn}",
            client=f"c{talk % 5}",
            arrival_us=turn * 40_000_000 + talk * 300_000,
            prompt=Runs([("system", 0, 64), (f"talk {talk}", 0, 30 * (turn + 1))]),
            output_len=5,
            max_tokens=5,
        )
        for turn in range(4)
        for talk in range(40)
    ]


def test_in_the_end_the_router_knows_what_the_replicas_hold() -> None:
    """Small memories that evict, late events, a failure and a join: afterwards all of it is true."""
    config = SimConfig(
        replicas=3,
        kv_tokens=1500,
        step_time="linear:1,0,0",
        event_delay_us=2_500_000,
        changes=(
            WorkerChange(time_us=50_000_000, worker=1, up=False),
            WorkerChange(time_us=90_000_000, worker=1, up=True),
        ),
    )
    cluster = Cluster(config, rows())
    cluster.run()

    assert cluster.view is not None and len(cluster.view.tree) > 0
    cluster.view.tree.check()
    for row in rows():
        end = len(row.prompt)
        known = cluster.view.tree.match(row.prompt, end)
        for replica in cluster.replicas:
            held = replica.host.memory._tree.match_len(row.prompt)  # type: ignore[attr-defined]
            assert known.of(str(replica.number)) == held, (row.id, replica.number)
