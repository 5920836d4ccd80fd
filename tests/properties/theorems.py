"""The theorems as searches: how near adversarial traffic gets to each bound (DESIGN 3.5).

Each gives a *ratio*, the largest gap of one run over the bound; it must never exceed 1. The tests
search a little at every run, `python -m benchmarks.theorems` for long. Rows are those of
docs/reference/invariants.md.

M is CAPACITY, L is MAX_INPUT, w_e = 1, w_q = 2; U = w_e L + w_q M.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.costs import parse_cost
from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.policies import fair, make_policy
from fairhit.routers.d2lpm import D2LPM
from fairhit_lab.baselines import ALL_ON_UNFIT, ALL_SCHEDULERS
from tests.properties.traffic import CAPACITY, CLIENTS, MAX_INPUT, arrivals, duels, floods
from tests.reference.cluster import AtWorkers, run_cluster
from tests.reference.engine import IdealEngine
from tests.reference.gaps import BackloggedGaps, StarvationGaps
from tests.reference.waits import Waits

W_E, W_Q = 1, 2
U = W_E * MAX_INPUT + W_Q * CAPACITY
U_VTC = max(W_E * MAX_INPUT, W_Q * CAPACITY)
WEIGHTS = {"a": 1, "b": 2, "c": Fraction(1, 2), "d": 3}
STEPS = 250  # of one run: gaps that could grow have grown by then
MAX_RUNNING = 6


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """One bound: `cases` are the runs to search, `ratio(**case)` is gap over bound in one of them."""

    row: int
    name: str
    bound: str
    cases: st.SearchStrategy[dict[str, Any]]
    ratio: Callable[..., float]


def engine(policy, *, skips=True, **options):
    """An ideal engine over the tree that the policy was made over."""
    return IdealEngine(
        policy=policy,
        tree=policy.tree,
        capacity=CAPACITY,
        skip_misfits=skips,
        checks_tree=False,
        **options,
    )


def policy_of(name, *, tree=None, **settings):
    """A policy that knows its tree."""
    tree = tree or RadixTree()
    policy = make_policy(name, cache=tree, policies=ALL_SCHEDULERS, **settings)
    policy.tree = tree
    return policy


def backlogged_gap(policy, traffic, *, steps=0, **options):
    """The largest gap of any two clients, both backlogged; 0 `steps` are STEPS, None is to the end."""
    gaps = BackloggedGaps()
    engine(policy, observers=[gaps], **options).run(traffic, steps=STEPS if steps == 0 else steps)
    return gaps.largest


def gap_past(policy, traffic, **options):
    """The most that anyone received past a client that was backlogged."""
    gaps = StarvationGaps(CLIENTS)
    engine(policy, observers=[gaps], **options).run(traffic, steps=STEPS)
    return max(gaps.largest.values(), default=0)


def most(gaps):
    return max(gaps.values(), default=0)


# -- DLPM ------------------------------------------------------------------------------------------


def dlpm_4_1(traffic, quantum, skips, policy=policy_of):
    gap = most(backlogged_gap(policy("dlpm", quantum=quantum), traffic, skips=skips))
    return gap / (2 * (U + quantum))


def dlpm_tight(traffic, quantum, skips, policy=policy_of):
    gap = most(backlogged_gap(policy("dlpm", quantum=quantum), traffic, skips=skips))
    return gap / (2 * (W_Q * CAPACITY + W_E + quantum))


def dlpm_4_2(traffic, quantum, skips, policy=policy_of):
    return gap_past(policy("dlpm", quantum=quantum), traffic, skips=skips) / (2 * (U + quantum))


def ageing_4_1(traffic, quantum, skips, max_overtake):
    policy = policy_of("dlpm", quantum=quantum, max_overtake=max_overtake)
    return most(backlogged_gap(policy, traffic, skips=skips)) / (2 * (U + quantum))


def dlpm_weighted(traffic, quantum, skips, policy=policy_of):
    weights = Weights({client: float(weight) for client, weight in WEIGHTS.items()})
    gaps = backlogged_gap(
        policy("dlpm", quantum=quantum, weights=weights),
        traffic,
        skips=skips,
        weights={client: Fraction(weight) for client, weight in WEIGHTS.items()},
    )
    return max(
        (
            gap / (2 * quantum + U * (1 / Fraction(WEIGHTS[f]) + 1 / Fraction(WEIGHTS[g])))
            for (f, g), gap in gaps.items()
        ),
        default=0,
    )


def first_dispatch(traffic, quantum, skips, policy=policy_of):
    """What each other client receives while a newcomer waits for its first admission."""
    waits = Waits()
    waits.watch(engine(policy("dlpm", quantum=quantum), skips=skips)).run(traffic, steps=STEPS)
    return waits.longest_first / (2 * quantum + U)


def every_request(traffic, quantum, skips, max_overtake, policy=policy_of):
    """What each other client receives while any one request waits, with ageing."""
    longest = max((arrival.request.max_tokens for arrival in traffic), default=1)
    overtaking = max_overtake + W_E * MAX_INPUT + W_Q * longest * (max_overtake // W_E + 1)
    waits = Waits(
        elders=lambda elders: sum(W_E * r.input_len + W_Q * r.max_tokens for r in elders),
        fixed=2 * (U + quantum) + W_Q * CAPACITY + overtaking,
    )
    chosen = policy("dlpm", quantum=quantum, max_overtake=max_overtake)
    waits.watch(engine(chosen, skips=skips)).run(traffic, steps=STEPS)
    return waits.worst_ratio


# -- VTC, DRR and any cost -------------------------------------------------------------------------


def vtc_4_4(traffic, policy=policy_of):
    gaps = backlogged_gap(policy("vtc"), traffic, skips=False, charge_input=True)
    return most(gaps) / (2 * U_VTC)


def vtc_4_9(traffic, policy=policy_of):
    return gap_past(policy("vtc"), traffic, skips=False, charge_input=True) / (4 * U_VTC)


def prepaid(traffic, name, policy=policy_of):
    gaps = backlogged_gap(policy(name), traffic, skips=False, charge_input=True)
    return most(gaps) / (2 * U_VTC)


def drr(traffic, quantum, skips, policy=policy_of):
    gaps = backlogged_gap(policy("drr", quantum=quantum), traffic, skips=skips, charge_input=True)
    return most(gaps) / (2 * (U + quantum))


COSTS = ["profiled", "flops:llama-3.2-3b", "piecewise:1,0.5@4/2,3@3,0.5@9", "linear:0.1,3"]


def dearest_batch(cost):
    """U_h: the dearest prompt, and memory full of the dearest output."""
    output = max(cost.decode(MAX_INPUT, before, 1) for before in range(CAPACITY))
    return cost.prefill(MAX_INPUT) + CAPACITY * output


def any_cost(traffic, quantum, name, text, policy=policy_of):
    cost = parse_cost(text)
    settings = {} if name == "vtc" else {"quantum": quantum}
    gaps = backlogged_gap(
        policy(name, cost=cost, **settings),
        traffic,
        skips=ALL_ON_UNFIT[name] == "skip",
        charge_input=name != "dlpm",
        cost=cost,
    )
    return most(gaps) / (2 * (dearest_batch(cost) + settings.get("quantum", 0) * UNITS_PER_TOKEN))


# -- fair ------------------------------------------------------------------------------------------

# Those of the form of `ContextCost`: outputs dear, prompts dear, the context dear, and all three.
FAIR_COSTS = ["linear:1,2", "linear:1,0.01", "context:0.1,0.5", "context:2,0.1,0.01"]


class FairTerms:
    """The terms of the bounds of `fair`, in units, each at its dearest under a cost.

    V the outputs of one batch; H a prompt that is cached to nine tenths; C one charge: a prompt with the
    outputs expected of it, or an output. The prompts of a batch are shared at best, and no output's
    context is then longer than if one request emitted them all: so V is that of a single request.
    """

    def __init__(self, cost, prepay):
        self.hit = max(cost.prefill(n // 10, n - n // 10) for n in range(MAX_INPUT + 1))
        self.outputs = max(cost.decode(n, 0, CAPACITY - n) for n in range(1, MAX_INPUT + 1))
        self.refund = self.outputs if prepay == "expected" else 0
        self.prompt = cost.prefill(MAX_INPUT)
        self.charge = max(self.prompt + self.refund, cost.decode(1, CAPACITY - 2, 1))

    @property
    def below(self):
        """C + H + V: how far below -B_i a deficit may fall."""
        return self.charge + self.hit + self.outputs


class Deficits:
    """The highest and the lowest deficit of each client, looked at whenever a client is served."""

    def __init__(self, policy):
        self._policy = policy
        self.highest, self.lowest = {}, {}

    def begin(self, client):
        """Nothing is served yet."""

    def end(self, client):
        """Its running requests go on."""

    def serve(self, client, amount):
        for each in {*CLIENTS, client}:
            q = self._policy.credit(each)
            self.highest[each] = max(self.highest.get(each, 0), q)
            self.lowest[each] = min(self.lowest.get(each, 0), q)


def fair_of(policy, weights, **drawn):
    """A policy `fair`, its cost, and its quantum, overdraft and terms in units."""
    cost = parse_cost(drawn.pop("text"))
    drawn["overdraft"] = min(drawn["overdraft"], drawn["quantum"])
    terms = FairTerms(cost, drawn["prepay"])
    with patch.object(fair, "UNPAID", drawn.pop("unpaid", fair.UNPAID)):
        chosen = policy("fair", cost=cost, weights=Weights(weights), **drawn)
    quantum, overdraft = (drawn[each] * UNITS_PER_TOKEN for each in ("quantum", "overdraft"))
    return chosen, cost, quantum, overdraft, terms


def fair_deficits(traffic, skips, policy=policy_of, **drawn):
    """How far a deficit falls towards its floor; past its cap, which every refill may reach; with weights."""
    weights = {client: float(weight) for client, weight in WEIGHTS.items()}
    chosen, cost, quantum, overdraft, terms = fair_of(policy, weights, **drawn)
    seen = Deficits(chosen)
    engine(chosen, skips=skips, observers=[seen], cost=cost).run(traffic, steps=STEPS)
    above = (q / (quantum * WEIGHTS[i] + terms.refund) for i, q in seen.highest.items())
    below = (-q / (overdraft * WEIGHTS[i] + terms.below) for i, q in seen.lowest.items())
    return max([*below, *(ratio for ratio in above if ratio > 1)], default=0)


def fair_gap(traffic, skips, policy=policy_of, **drawn):
    chosen, cost, quantum, overdraft, terms = fair_of(policy, {}, **drawn)
    gap = most(backlogged_gap(chosen, traffic, skips=skips, cost=cost))
    return gap / (2 * (quantum + overdraft + terms.below + terms.refund))


def fair_unpaid(**case):
    """The same where each output is charged when it is emitted, so that nothing is refunded."""
    return fair_gap(**case, prepay="none")


def fair_past(traffic, skips, policy=policy_of, **drawn):
    chosen, cost, quantum, overdraft, terms = fair_of(policy, {}, **drawn)
    gap = gap_past(chosen, traffic, skips=skips, cost=cost)
    return gap / (2 * (quantum + overdraft + terms.below + terms.refund))


def fair_weighted(traffic, skips, policy=policy_of, **drawn):
    weights = {client: float(weight) for client, weight in WEIGHTS.items()}
    chosen, cost, quantum, overdraft, terms = fair_of(policy, weights, **drawn)
    exact = {client: Fraction(weight) for client, weight in WEIGHTS.items()}
    gaps = backlogged_gap(chosen, traffic, skips=skips, cost=cost, weights=exact)
    both, each = 2 * (quantum + overdraft), terms.below + terms.refund
    return max(
        (gap / (both + each * (1 / exact[f] + 1 / exact[g])) for (f, g), gap in gaps.items()),
        default=0,
    )


# -- hosts that know late, and several of them -------------------------------------------------------


def notified_late(traffic, quantum, delay, policy=policy_of):
    gaps = backlogged_gap(
        policy("dlpm", quantum=quantum), traffic, delay=delay, max_running=MAX_RUNNING
    )
    return most(gaps) / (2 * (U + quantum + W_Q * MAX_RUNNING * delay))


def everywhere(gaps, traffic, *, workers, quantum, worker_quantum, policy=policy_of):
    """The gaps while backlogged at every worker, over the sum of the workers' bounds."""
    run_cluster(
        traffic,
        workers=workers,
        router=D2LPM(quantum=worker_quantum, min_match=1, charge="extend"),
        policy=lambda tree: policy("dlpm", tree=tree, quantum=quantum),
        observers=AtWorkers(workers, gaps),
        steps=STEPS,
    )
    return most(gaps.largest) / (workers * 2 * (U + quantum))


def d2lpm_5_1(**case):
    return everywhere(BackloggedGaps(), **case)


def d2lpm_5_2(**case):
    return everywhere(StarvationGaps("ab"), **case)


quanta = st.sampled_from([1, 3, 17, 60, 400])
booleans = st.booleans()
traffic = arrivals() | floods() | duels()
early_ends = duels(early_ends=True) | traffic
cluster_traffic = arrivals(clients="ab", min_size=20, max_size=80, max_step=10)
fleets = {
    "traffic": cluster_traffic,
    "workers": st.integers(1, 3),
    "quantum": st.sampled_from([1, 17, 400]),
    "worker_quantum": st.sampled_from([1, 50, 2000]),
}


def _cases(**drawn):
    return st.fixed_dictionaries({"traffic": traffic, **drawn})


_dlpm = {"quantum": quanta, "skips": booleans}
_plain = {
    "skips": booleans,
    "quantum": quanta,
    "overdraft": st.sampled_from([0, 1, 17, 400]),
    "near": st.sampled_from([1, 8]),
    "text": st.sampled_from(FAIR_COSTS),
}
_fair = {
    **_plain,
    "prepay": st.sampled_from(["expected", "none"]),
    "unpaid": st.sampled_from([0, 15, 65_536]),
}


def _early(**drawn):
    return st.fixed_dictionaries({"traffic": early_ends, **drawn})


THEOREMS = [
    Theorem(
        row=7,
        name="DLPM, Theorem 4.1",
        bound="2 (U + Q)",
        cases=_cases(**_dlpm),
        ratio=dlpm_4_1,
    ),
    Theorem(
        row=7,
        name="DLPM, Theorem 4.1, ours",
        bound="2 (w_q M + w_e + Q)",
        cases=_cases(**_dlpm),
        ratio=dlpm_tight,
    ),
    Theorem(
        row=7,
        name="DLPM with ageing, Theorem 4.1",
        bound="2 (U + Q)",
        cases=_cases(**_dlpm, max_overtake=st.integers(0, 40)),
        ratio=ageing_4_1,
    ),
    Theorem(
        row=8,
        name="DLPM, Theorem 4.2",
        bound="2 (U + Q)",
        cases=_cases(**_dlpm),
        ratio=dlpm_4_2,
    ),
    Theorem(
        row=9,
        name="weighted DLPM",
        bound="2 Q + U (1/w_f + 1/w_g)",
        cases=_cases(**_dlpm),
        ratio=dlpm_weighted,
    ),
    Theorem(
        row=10, name="VTC, Theorem 4.4", bound="2 max(w_p L, w_q M)", cases=_cases(), ratio=vtc_4_4
    ),
    Theorem(
        row=15,
        name="D2LPM, Theorem 5.1 at every worker",
        bound="W 2 (U + Q)",
        cases=st.fixed_dictionaries(fleets),
        ratio=d2lpm_5_1,
    ),
    Theorem(
        row=15,
        name="D2LPM, Theorem 5.2 at every worker",
        bound="W 2 (U + Q)",
        cases=st.fixed_dictionaries(fleets),
        ratio=d2lpm_5_2,
    ),
    Theorem(
        row=20, name="VTC, Theorem 4.9", bound="4 max(w_p L, w_q M)", cases=_cases(), ratio=vtc_4_9
    ),
    Theorem(
        row=21,
        name="DLPM, a newcomer's first dispatch",
        bound="2 Q + U",
        cases=_cases(**_dlpm),
        ratio=first_dispatch,
    ),
    Theorem(
        row=22,
        name="DLPM with ageing, every request",
        bound="2 (U + Q) + w_q M + elders + A + w_e L + w_q L_out (A / w_e + 1)",
        cases=_cases(**_dlpm, max_overtake=st.integers(0, 20)),
        ratio=every_request,
    ),
    Theorem(row=23, name="DRR, gated", bound="2 (U + Q)", cases=_cases(**_dlpm), ratio=drr),
    Theorem(
        row=24,
        name="any cost h",
        bound="2 (U_h + Q)",
        cases=_cases(
            quantum=quanta,
            name=st.sampled_from(["dlpm", "drr", "vtc"]),
            text=st.sampled_from(COSTS),
        ),
        ratio=any_cost,
    ),
    Theorem(
        row=25,
        name="VTC with prediction (conjecture)",
        bound="2 max(w_p L, w_q M)",
        cases=st.fixed_dictionaries(
            {
                "traffic": early_ends,
                "name": st.sampled_from(["vtc-predict", "vtc-oracle", "vtc-noisy"]),
            }
        ),
        ratio=prepaid,
    ),
    Theorem(
        row=26,
        name="DLPM notified of outputs d steps late",
        bound="2 (U + Q + w_q R d)",
        cases=_cases(quantum=quanta, delay=st.integers(1, 5)),
        ratio=notified_late,
    ),
    Theorem(
        row=36,
        name="fair, the deficits",
        bound="Q_i + V above, B_i + C + H + V below",
        cases=_early(**_fair),
        ratio=fair_deficits,
    ),
    Theorem(
        row=37,
        name="fair, both backlogged",
        bound="2 (Q + B + C + H + 2 V)",
        cases=_early(**_fair),
        ratio=fair_gap,
    ),
    Theorem(
        row=37,
        name="fair, prepay none",
        bound="2 (Q + B + C + H + V)",
        cases=_early(**_plain),
        ratio=fair_unpaid,
    ),
    Theorem(
        row=37,
        name="fair, weighted",
        bound="2 (Q + B) + (C + H + 2 V) (1/w_f + 1/w_g)",
        cases=_early(**_fair),
        ratio=fair_weighted,
    ),
    Theorem(
        row=38,
        name="fair, past a backlogged client",
        bound="2 (Q + B + C + H + 2 V)",
        cases=_early(**_fair),
        ratio=fair_past,
    ),
]
