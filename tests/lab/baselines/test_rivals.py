"""k-LPM, WSC, LAS and Justitia: against models written out, by hand, and from the command line."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.traffic import CAPACITY, CLIENTS, arrivals, duels, floods
from tests.reference.engine import IdealEngine
from tests.reference.rivals import PrintedJustitia, PrintedKLPM, PrintedLAS, PrintedWSC
from tests.unit.policies.queue import Queue

from fairhit.cli import main
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.service import TokenCost
from fairhit.errors import ConfigError
from fairhit.policies import make_policy
from fairhit_lab.baselines import ALL_SCHEDULERS
from fairhit_lab.baselines.justitia import VirtualTime, occupied

SECOND = 1_000_000
some = settings(max_examples=100, deadline=None)
loads = arrivals() | floods() | duels(early_ends=True)


def same(name, model, traffic, skip_misfits, **own):
    """The policy and the model make the same admissions and leave the same credits."""
    runs = []
    for make in (
        lambda tree: make_policy(name, cache=tree, policies=ALL_SCHEDULERS, **own),
        model,
    ):
        tree = RadixTree()
        engine = IdealEngine(
            policy=make(tree),
            tree=tree,
            capacity=CAPACITY,
            skip_misfits=skip_misfits,
            max_running=4,
        )
        runs.append(engine.run(traffic))
    fast, slow = runs
    assert fast.admitted == slow.admitted
    assert [fast.policy.credit(c) for c in CLIENTS] == [slow.policy.credit(c) for c in CLIENTS]


@some
@given(traffic=loads, k=st.sampled_from([1, 2, 3, 7]), skip_misfits=st.booleans())
def test_k_lpm_decides_as_its_rule_written_out(traffic, k, skip_misfits):
    same("k-lpm", lambda tree: PrintedKLPM(cache=tree, k=k), traffic, skip_misfits, oldest_every=k)


@some
@given(traffic=loads, skip_misfits=st.booleans())
def test_wsc_decides_as_its_counters_written_out(traffic, skip_misfits):
    same("wsc", lambda _: PrintedWSC(cost=TokenCost()), traffic, skip_misfits)


@some
@given(traffic=arrivals() | floods(), skip_misfits=st.booleans())
def test_las_decides_as_its_score_written_out(traffic, skip_misfits):
    """A half-life of one step: the ages are whole numbers, at most 40, and both sums exact."""
    timed = [
        replace(each, request=replace(each.request, arrival_us=each.step * SECOND))
        for each in traffic
    ]
    same("las", lambda _: PrintedLAS(half_life=SECOND), timed, skip_misfits, half_life=SECOND)


@some
@given(traffic=loads, agents=st.sampled_from([0, 1, 3]), skip_misfits=st.booleans())
def test_justitia_decides_as_sharing_unit_by_unit_does(traffic, agents, skip_misfits):
    """With no, one and three programs a client."""
    keyed = [
        replace(each, request=replace(each.request, routing_key=key(each.request, agents)))
        for each in traffic
    ]
    same("justitia", lambda _: PrintedJustitia(), keyed, skip_misfits)


def key(request, agents):
    return str(request.order % agents) if agents else ""


def test_k_lpm_takes_the_oldest_at_every_second_admission():
    """0 is cold and old; 1 to 4 share a cached prompt."""
    queue = Queue("k-lpm", oldest_every=2)
    hot = tuple("0123456789")
    queue.tree.release(queue.tree.insert(queue.tree.acquire(hot, 0), hot, 0))
    queue.wait("c")
    queue.wait("hhhh", prompt=hot)

    assert queue.admit() == "hchhh"


def test_wsc_counts_a_typical_request_of_each_client_as_one():
    """a's requests cost 50 + 2, b's 8 + 2; a pass charges prompts, and the older head wins a tie.

    VTC: a 52, b 10, lifted to 52 when both return. a 102; then b 60, 68, 76, 84, 92.
    WSC: both 1 after their first. a 1 + 50/52 = 1.96; b 1.8, 2.6; a 2.92; b 3.4; a.
    """
    served = {}
    for name in ("vtc", "wsc"):
        queue = Queue(name)
        queue.wait("a", input_len=50, max_tokens=1)
        queue.wait("b", input_len=8, max_tokens=1)
        queue.admit()
        queue.end(0, outputs=1)
        queue.end(1, outputs=1)
        for _ in range(5):
            queue.wait("a", input_len=50, max_tokens=1)
            queue.wait("b", input_len=8, max_tokens=1)
        served[name] = queue.admit(6)

    assert served == {"vtc": "abbbbb", "wsc": "abbaba"}


def test_las_charges_when_a_request_is_finished_and_forgets_by_half():
    """a: 10 + 2 * 5 = 20, and 10 after a half-life; what is cancelled is free."""
    queue = Queue("las", half_life=10 * SECOND)
    queue.wait("ab")
    assert queue.admit() == "ab"
    assert queue.policy.credit("a") == 0
    queue.end(0, outputs=5)
    queue.end(1, outputs=5, how="cancel")
    assert [queue.policy.credit(client) for client in "ab"] == [-20, 0]

    later = replace(queue.requests[0], id="later", order=9, arrival_us=10 * SECOND)
    queue.scheduler.add(later)
    assert queue.policy.credit("a") == -10


def test_virtual_time_goes_faster_when_fewer_share():
    """a needs 4, b 10: after 8 units a is through at V = 4; the next 6 are all b's."""
    time = VirtualTime()
    assert (time.arrive("a", 4), time.arrive("b", 10)) == (4, 10)
    time.advance(8)
    assert time.now == 4
    time.advance(5)
    assert time.now == 9
    assert time.arrive("a", 4) == 13
    time.advance(100)
    assert time.now == 13


def test_memory_occupied_is_the_sum_over_outputs():
    assert occupied(10, 0, 3) == 10 + 11 + 12
    assert occupied(10, 1, 2) == 11 + 12


def test_justitia_serves_the_small_agent_whole_before_the_large_one():
    """x of a needs 2 requests, y of b 4 that came first; each agent is served without a break."""
    queue = Queue("justitia")
    for agent in "yyyyxx":
        queue.wait("b" if agent == "y" else "a", routing_key=agent)

    assert queue.admit() == "aabbbb"


@pytest.mark.parametrize(
    ("name", "own", "flag"),
    [("k-lpm", {"oldest_every": 0}, "oldest-every"), ("las", {"half_life": 0}, "half-life")],
)
def test_a_bad_setting_is_one_clear_line(name, own, flag):
    with pytest.raises(ConfigError, match=rf"^{flag}: expected [^\n]*0$"):
        make_policy(name, cache=RadixTree(), policies=ALL_SCHEDULERS, **own)


@pytest.mark.parametrize(
    "given",
    [("k-lpm", "--oldest-every", "2"), ("wsc",), ("las", "--half-life", "30"), ("justitia",)],
    ids=lambda given: given[0],
)
def test_the_command_line_runs_it(given, tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    rows = [
        f'{{"id":"{n}","client":"{"ab"[n % 2]}","arrival":0,"prompt":[["A",9],["x{n}",5]],"output_len":3}}\n'
        for n in range(6)
    ]
    trace.write_text("".join(rows))
    run = ["simulate", str(trace), "--step-time", "linear:1,0,0", "--kv-tokens", "100"]

    assert main([*run, "--scheduler", *given]) == 0
    assert "6 requests: 6 finished" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--oldest-every", "--half-life"])
def test_the_command_line_refuses_a_bad_value(flag, tmp_path, capsys):
    (trace := tmp_path / "trace.jsonl").write_text("")

    assert main(["simulate", str(trace), flag, "0"]) == 2
    assert flag.strip("-") in capsys.readouterr().err
