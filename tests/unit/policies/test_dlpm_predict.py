"""DLPM that charges the outputs it expects: what is charged when, and what that changes."""

from tests.unit.policies.queue import Queue


def spent(queue, client, before):
    return before - queue.credit(client)


def test_the_mean_of_the_last_five_is_charged_at_admission():
    """
    Nothing is expected of a's first request; then the means of what finished before, in whole tokens.
    """
    queue = Queue("dlpm-predict", quantum=1_000)
    charged = []
    for number, outputs in enumerate([2, 4, 5]):
        queue.wait("a")
        before = queue.credit("a") or 1_000
        queue.admit()
        charged.append(spent(queue, "a", before))
        queue.end(number, outputs=outputs)

    extend = charged[0]
    assert [each - extend for each in charged] == [0, 2 * 2, 2 * 3]


def test_all_in_all_a_request_costs_what_it_had():
    """
    Four outputs are expected and six come, or none: credit ends where plain DLPM's does.
    """
    left = {}
    for name in ("dlpm", "dlpm-predict"):
        queue = Queue(name, quantum=1_000)
        for number, outputs in enumerate([4, 6, 0]):
            queue.wait("a")
            queue.admit()
            queue.end(number, outputs=outputs)
        left[name] = queue.credit("a")

    assert left["dlpm-predict"] == left["dlpm"]


def test_no_more_is_charged_than_max_tokens():
    """
    The request before had eight outputs; of this one more than five can never come.
    """
    queue = Queue("dlpm-predict", quantum=1_000)
    queue.wait("a")
    queue.admit()
    extend = spent(queue, "a", 1_000)
    queue.end(0, outputs=8)
    before = queue.credit("a")
    queue.wait("a", max_tokens=5)
    queue.admit()

    assert spent(queue, "a", before) - extend == 2 * 5
