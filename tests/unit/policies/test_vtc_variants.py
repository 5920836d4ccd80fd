"""LCF and the VTCs that charge outputs in advance: what each of them counts, and when."""

from fairhit.core.costs import parse_cost
from fairhit.core.service import Weights
from tests.unit.policies.queue import Queue


def always(outputs):
    return lambda _: outputs


def received(queue, client):
    return -queue.credit(client)


def test_lcf_lets_who_was_away_catch_up():
    """
    a was served three times while b slept: now b is served alone until it is level. VTC lifts it.
    """
    served = {}
    for name in ("lcf", "vtc"):
        queue = Queue(name)
        queue.wait("aaaaaa")
        queue.admit(3)
        queue.wait("bbbb")
        served[name] = queue.admit(4)

    assert served == {"lcf": "bbba", "vtc": "abab"}


def test_prediction_starts_at_nothing_and_follows_the_last_five_that_finished():
    """
    Outputs of 2, 4, 5, 6, 8 and 8: the mean of the last five is 6.2, charged as 6 whole tokens.
    """
    queue = Queue("vtc-predict")
    charged = []
    for number, outputs in enumerate([2, 4, 5, 6, 8, 8, 0]):
        queue.wait("a")
        before = received(queue, "a")
        queue.admit()
        charged.append((received(queue, "a") - before - 10) / 2)
        queue.end(number, outputs=outputs)

    assert charged == [0, 2, 3, 4, 4, 5, 6]


def test_outputs_up_to_the_prediction_cost_nothing_more_and_those_beyond_cost_as_they_come():
    """
    Four outputs were charged at selection (8 tokens of service): the fifth is the first to cost.
    """
    queue = Queue("vtc-oracle", output_len=always(4))
    queue.wait("a")
    queue.admit()
    seen = []
    for _ in range(6):
        queue.scheduler.decode(queue.requests[0], 1)
        seen.append(received(queue, "a"))

    assert seen == [18, 18, 18, 18, 20, 22]


def test_what_did_not_come_is_given_back_at_a_finish_and_at_an_abort():
    """
    Both clients were charged for ten outputs and got three.
    """
    for how in ("finish", "cancel"):
        queue = Queue("vtc-oracle")
        queue.wait("a")
        queue.admit()
        assert received(queue, "a") == 30
        queue.end(0, outputs=3, how=how)
        assert received(queue, "a") == 16


def test_a_refund_may_put_its_client_first_again():
    """
    a was charged 30 and b 10; the refund of 18 leaves a at 12, and after b's next request it leads.
    """
    queue = Queue("vtc-oracle", output_len=lambda r: 10 if r.client == "a" else 0)
    queue.wait("aa" + "bbb")
    assert queue.admit(3) == "abb"
    queue.end(0, outputs=1)

    assert queue.admit() == "ab"


def test_an_abort_says_nothing_of_the_length_of_others():
    """
    The caller hung up after one output; the next is still expected to be as long as the finished one.
    """
    queue = Queue("vtc-predict")
    queue.wait("aaa")
    queue.admit(1)
    queue.end(0, outputs=8)
    queue.admit(1)
    queue.end(1, outputs=1, how="cancel")
    before = received(queue, "a")
    queue.admit(1)

    assert received(queue, "a") - before == 10 + 2 * 8


def test_a_prediction_above_max_tokens_counts_as_max_tokens():
    """
    No client waits for outputs that can never come.
    """
    queue = Queue("vtc-oracle", output_len=always(1_000_000))
    queue.wait("a", max_tokens=5)
    queue.admit()

    assert received(queue, "a") == 10 + 2 * 5


def test_oracle_batches_are_even_where_plain_vtc_is_surprised():
    """
    Ten outputs for a, one for b, all admitted at once: plain VTC takes as many of each and learns
    of the outputs later; the oracle takes three of b's for each of a's, as they cost 30 and 12.
    """
    batches = {}
    for name in ("vtc", "vtc-oracle"):
        queue = Queue(name)
        queue.wait("a" * 8, max_tokens=10)
        queue.wait("b" * 8, max_tokens=1)
        batches[name] = queue.admit(8)

    assert batches == {"vtc": "abababab", "vtc-oracle": "abbbabba"}


def test_noise_is_within_half_and_repeats_with_its_seed():
    def charges(seed):
        queue = Queue("vtc-noisy", seed=seed, output_len=always(100))
        taken = []
        for _ in range(50):
            queue.wait("a", max_tokens=1_000)
            before = received(queue, "a")
            queue.admit()
            taken.append((received(queue, "a") - before - 10) / 2)
        return taken

    assert charges(1) == charges(1) != charges(2)
    assert min(charges(1)) < 60
    assert max(charges(1)) > 140
    assert all(50 <= outputs <= 150 for outputs in charges(1))


def test_any_cost_is_charged_in_advance_by_differences():
    """
    Outputs cost 2 each and 4 from the third on; a gold client of weight 2 is charged half of it all.
    """
    cost = parse_cost("piecewise:1/2,4@2")
    queue = Queue("vtc-oracle", cost=cost, weights=Weights({"g": 2}), output_len=always(3))
    queue.wait("g")
    queue.admit()
    assert received(queue, "g") == (10 + 8) / 2
    queue.end(0, outputs=4)
    assert received(queue, "g") == (10 + 12) / 2


def test_the_whole_batch_is_charged_at_selection_under_any_cost():
    """
    Algorithm 4 as printed charges a prompt only when it was processed, so one client takes the batch.
    """
    queue = Queue("vtc", cost=parse_cost("profiled"))
    queue.wait("aaaa" + "bbbb")

    assert queue.admit(4) == "abab"
