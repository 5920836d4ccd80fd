"""The claims about DLPM Figure 7: ratios of systems over the points that have enough programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median

from fairhit_lab.studies.dlpm.fig7_points import (
    SCARCE,
    STATED_THERE,
    Fig7Point,
    Fig7Table,
    by_workload,
    over_points,
)
from fairhit_lab.studies.dlpm.shared import STATED, Run, spelled
from fairhit_lab.studies.shared.claims import (
    SHARE,
    Rule,
    above,
    below,
    could_show,
    jain_of,
    judged,
    up_to,
)
from fairhit_lab.studies.shared.limits import throughput_ratio
from fairhit_lab.studies.shared.results import (
    Interval,
    Label,
    Results,
    interval_of,
    three_digits,
)
from fairhit_lab.studies.shared.study import Verdict

HALVES = "95 % to 50 %"
CLIENTS = jain_of(3)
Take = Callable[[Sequence[float]], float]


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on throughput, the order of Jain's index, latencies and hit rates; without those not run."""
    table = Fig7Table(results)
    names = dict.fromkeys(str(point.variant) for point in table.points)
    # Scarce memory is RR+LPM's alone, for the hit rate.
    variants = [name for name in names if name not in {STATED, SCARCE}]
    if variants:
        variants.insert(0, STATED_THERE)
    over_points: list[Verdict] = []
    if any(point.variant == STATED and point.replicas != 1 for point in table.points):
        over_points = [
            *_throughput(table, variants),
            *_fairness(table, variants),
            _gaps(table, variants),
            *_latencies(table, variants),
        ]
    return [
        *over_points,
        *_collapse(results, table),
        *_piling_up(results),
    ]


def _elsewhere(
    table: Fig7Table,
    variants: Sequence[str],
    metric: str,
    pair: tuple[str, str],
    take: Take,
) -> dict[str, Interval]:
    """Ratios of two systems' metric in the settings in which at least one of the two was run.

    A maximum is of as many points as the stated one, or it is not compared.
    """
    found = {name: table.ratios(name, metric, *pair) for name in (STATED, *variants)}
    stated = _points_of(found.pop(STATED))
    return {
        variant: over_points(ratios, take)
        for variant, ratios in found.items()
        if ratios and (take is not max or _points_of(ratios) >= stated)
    }


def _points_of(ratios: Mapping[Label, Mapping[Fig7Point, float]]) -> int:
    """The number of points that the ratios are of."""
    return len({point for of in ratios.values() for point in of})


def _about(printed: float) -> str:
    """The margin around a printed number: "2.15x to 3.83x"."""
    rule = up_to(printed)
    return f"{three_digits(rule.low)}x to {three_digits(rule.high)}x"


def _throughput(table: Fig7Table, variants: Sequence[str]) -> Iterator[Verdict]:
    for system, printed, name in (("vtc", 2.87, "VTC"), ("rr+lpm", 2.22, "RR+LPM")):
        ratios = table.ratios(STATED, "throughput", "d2lpm", system)
        asked: tuple[tuple[str, str, Take, Rule], ...] = (
            (
                f"up to {printed}x the throughput of {name} ({_about(printed)}): the best of {table.scope}",
                f"up to {printed}x",
                max,
                up_to(printed),
            ),
            (
                f"more throughput than {name}: the mean over {table.scope}",
                "above 1x",
                fmean,
                above(1),
            ),
        )
        for claim, paper, take, rule in asked:
            yield judged(
                claim=f"D2LPM has {claim}",
                paper=paper,
                ours=over_points(ratios, take),
                unit="x",
                rule=rule,
                why=by_workload(ratios, take),
                elsewhere=_elsewhere(table, variants, "throughput", ("d2lpm", system), take),
                reach=_throughput_reach(table, system, take),
            )
    yield from _beside_preble(table)


def _beside_preble(table: Fig7Table) -> Iterator[Verdict]:
    exception = ("long-qa", "s2", 8)
    against = table.ratios(STATED, "throughput", "d2lpm", "preble")
    usual = {
        seed: {point: value for point, value in of.items() if point[1:] != exception}
        for seed, of in against.items()
        if any(point[1:] != exception for point in of)
    }
    yield judged(
        claim="D2LPM's throughput is Preble's or more (98 %) at every point but S2 long QA at D = 8: "
        f"the share of such points, of {table.scope}",
        paper="all",
        ours=over_points(usual, lambda values: fmean(value >= 0.98 for value in values)),
        rule=Rule(low=1),
        why=f"at the worst points {by_workload(usual, min)}",
        reach=SHARE,
    )
    if worst := [of[point] for of in against.values() for point in of if point[1:] == exception]:
        yield judged(
            claim="S2 long QA at D = 8 is the exception: D2LPM's throughput in Preble's",
            paper="below 1x",
            ours=interval_of(worst),
            unit="x",
            rule=below(1),
            reach=_reach_at(table, exception),
        )


def _reach_at(table: Fig7Table, at: tuple[str, str, int]) -> Rule | None:
    """Return the range of D2LPM's throughput over Preble's at a point, given Preble's."""
    pairs = table.pairs(STATED, "throughput", "d2lpm", "preble")
    caps = [
        most / base
        for seed, of in pairs.items()
        for point, (_, base) in of.items()
        if point[1:] == at and (most := table.most_throughput(point, seed))
    ]
    return could_show(0, max(caps)) if caps else None


def _fairness(table: Fig7Table, variants: Sequence[str]) -> Iterator[Verdict]:
    pairs = (
        ("vtc", "d2lpm", "VTC is at least as fair as D2LPM", 0.995),
        ("d2lpm", "preble", "D2LPM is fairer than Preble", 1.0),
        ("preble", "rr+lpm", "Preble is fairer than RR+LPM", 1.0),
    )
    for over, under, claim, least in pairs:
        client, system = (
            over_points(table.ratios(STATED, metric, over, under), fmean)
            for metric in ("jain_client", "jain_system")
        )
        yield judged(
            claim=f"{claim}: Jain's index (client view) of one in the other's, mean over {table.scope}",
            paper="VTC >= D2LPM > Preble > RR+LPM",
            ours=client,
            unit="x",
            rule=above(least),
            why=f"system view: {system}x",
            reach=could_show(CLIENTS.low / CLIENTS.high, CLIENTS.high / CLIENTS.low),
            elsewhere=_elsewhere(table, variants, "jain_client", (over, under), fmean),
        )


def _gaps(table: Fig7Table, variants: Sequence[str]) -> Verdict:
    """The verdict on the size of the differences whose order `_fairness` judges."""

    def means(variant: str) -> list[tuple[float, float]]:
        """By seed the mean differences of Jain's index, VTC less D2LPM and D2LPM less Preble."""
        to_vtc, to_preble = (
            table.pairs(variant, "jain_client", *pair)
            for pair in (("vtc", "d2lpm"), ("d2lpm", "preble"))
        )
        found = []
        for seed in to_preble:
            first, second = to_vtc.get(seed, {}), to_preble[seed]
            if both := [point for point in second if point in first]:
                small, notable = (
                    fmean(of[point][0] - of[point][1] for point in both) for of in (first, second)
                )
                found.append((small, notable))
        return found

    def larger_by(of: Sequence[tuple[float, float]]) -> Interval:
        return interval_of(second - abs(first) for first, second in of)

    stated = means(STATED)
    to_vtc, to_preble = (interval_of(each) for each in zip(*stated, strict=True))
    return judged(
        claim="the gap of Jain's index (client view) from VTC to D2LPM is smaller than that from D2LPM to "
        f"Preble: the second less the first, means over {table.scope}, here {to_preble} and {to_vtc}",
        paper="small gap, notable gap",
        ours=larger_by(stated),
        rule=above(0),
        elsewhere={variant: larger_by(of) for variant in variants if (of := means(variant))},
        reach=could_show(-2 * (CLIENTS.high - CLIENTS.low), CLIENTS.high - CLIENTS.low),
    )


def _latencies(table: Fig7Table, variants: Sequence[str]) -> Iterator[Verdict]:
    printed = (
        ("preble", "Preble", 7.18, 2.90),
        ("rr+lpm", "RR+LPM", 9.55, 4.06),
        ("vtc", "VTC", 7.96, 2.98),
    )
    for system, name, most, mean in printed:
        asked: tuple[tuple[str, str, Take, Rule], ...] = (
            (
                f"up to {most}x D2LPM's ({_about(most)})",
                f"up to {most}x",
                max,
                up_to(most),
            ),
            (
                f"on average {mean}x D2LPM's ({_about(mean)})",
                f"{mean}x",
                fmean,
                up_to(mean),
            ),
            ("above D2LPM's on average", "above 1x", fmean, above(1)),
        )
        stated = _both_percentiles(table, STATED, system)
        for claim, paper, take, rule in asked:
            yield judged(
                claim=f"good clients' latency under {name} is {claim}: P50 and P99 of {table.scope}",
                paper=paper,
                ours=interval_of(take(values) for values in stated),
                unit="x",
                rule=rule,
                why=_by_percentile(table, system, take),
                elsewhere={
                    variant: interval_of(take(values) for values in both)
                    for variant in variants
                    if (both := _both_percentiles(table, variant, system))
                    and (take is not max or len(both[0]) >= len(stated[0]))
                },
                reach=_latency_reach(table, system, take),
            )


def _latency_reach(table: Fig7Table, system: str, take: Take) -> Rule | None:
    """Return the range of the ratio of latencies, given D2LPM's: at most, nothing of the system's ends.

    A maximum counts as within reach if half of the points could show it: else it would be over fewer
    points than the paper's. None where a row's settings were not recorded.
    """
    found: dict[Label, list[float]] = {}
    for percentile in ("p50", "p99"):
        for seed, of in table.pairs(STATED, percentile, system, "d2lpm").items():
            for point, (_, base) in of.items():
                row = table.row(point, seed, system)
                longest_s = table.longest_s(row, percentile) if row else None
                if longest_s is None:
                    return None
                found.setdefault(seed, []).append(longest_s / base)
    of_points = median if take is max else take
    return could_show(0, max(of_points(caps) for caps in found.values())) if found else None


def _throughput_reach(table: Fig7Table, system: str, take: Take) -> Rule | None:
    """Return the range of the ratio of throughputs, given the system's: D2LPM serves at most what is asked.

    Of a maximum as of latencies. None where a row's settings were not recorded.
    """
    found: dict[Label, list[float]] = {}
    for seed, of in table.pairs(STATED, "throughput", "d2lpm", system).items():
        for point, (_, base) in of.items():
            most = table.most_throughput(point, seed)
            if most is None:
                return None
            found.setdefault(seed, []).append(most / base)
    of_points = median if take is max else take
    return could_show(0, max(of_points(caps) for caps in found.values())) if found else None


def _by_percentile(table: Fig7Table, system: str, take: Take) -> str:
    """Latency ratios as stated, P50 and P99, for the reason of a verdict."""
    return "; ".join(
        f"{percentile.upper()}: {by_workload(ratios, take)}"
        for percentile in ("p50", "p99")
        for ratios in [table.ratios(STATED, percentile, system, "d2lpm")]
    )


def _both_percentiles(table: Fig7Table, variant: str, system: str) -> list[list[float]]:
    """By seed the ratios to D2LPM's latencies at all points, P50 and P99."""
    both: dict[Label, list[float]] = {}
    for percentile in ("p50", "p99"):
        for seed, of in table.ratios(variant, percentile, system, "d2lpm").items():
            both.setdefault(seed, []).extend(of.values())
    return list(both.values())


def _collapse(results: Results, table: Fig7Table) -> Iterator[Verdict]:
    """Verdicts on RR+LPM's hit rate from four to eight GPUs."""
    if 8 not in results.labels("replicas"):
        return
    of: dict[str, Label] = {"workload": "tot", "misbehaviour": "s2", "variant": STATED}
    runs: dict[str, Run] = {
        f"{name} D = {replicas}": {**of, "system": system, "replicas": replicas}
        for system, name in (("rr+lpm", "RR+LPM"), ("d2lpm", "D2LPM"))
        for replicas in (4, 8)
    }

    def at(metric: str, variant: str) -> Interval:
        own: dict[str, Label] = {**of, "system": "rr+lpm", "variant": variant}
        return results.ratio(metric, {**own, "replicas": 8}, {**own, "replicas": 4})

    before, slowest = (
        results.interval(metric, **runs["RR+LPM D = 4"]) for metric in ("hit_rate", "throughput")
    )
    # All that is asked for is the same of any system.
    most = [table.most_throughput(Fig7Point(STATED, "tot", "s2", 8), seed) for seed in table.seeds]
    asked = max((each for each in most if each), default=None)
    reaches = {
        "hit_rate": could_show(0, 1 / before.low) if before.seeds else None,
        "throughput": could_show(0, asked / slowest.low) if asked and slowest.seeds else None,
    }
    for metric, claim, paper, rule in (
        (
            "hit_rate",
            "the hit rate falls to 0.53 of itself (0.66 or less)",
            HALVES,
            Rule(high=0.66),
        ),
        ("hit_rate", "the hit rate falls", HALVES, below(1)),
        ("throughput", "throughput falls", "falls (too slow: the point is omitted)", below(1)),
    ):
        yield judged(
            claim=f"S2 trees of thought under RR+LPM: {claim} from D = 4 to D = 8",
            paper=paper,
            ours=at(metric, STATED),
            unit="x",
            rule=rule,
            why=f"hit rates {spelled(results, 'hit_rate', runs)}",
            elsewhere={SCARCE: at(metric, SCARCE)},
            reach=reaches[metric],
        )


def _piling_up(results: Results) -> Iterator[Verdict]:
    """The verdict on S2 judge: client 0's articles all begin with a text longer than --min-match."""
    if "min-match 1,024" not in results.labels("variant"):
        return
    of: dict[str, Label] = {
        "system": "d2lpm",
        "workload": "judge",
        "misbehaviour": "s2",
        "replicas": 4,
    }

    def gain(variant: str, without: str) -> Interval:
        return results.ratio("throughput", {**of, "variant": variant}, {**of, "variant": without})

    longer = "Q^w 1,048,576"
    hits: dict[str, Run] = {
        f"min-match {tokens}": {**of, "variant": variant}
        for tokens, variant in (("64", STATED), ("1,024", "min-match 1,024"))
    }
    yield judged(
        claim="S2 judge at D = 4: a preface that all of client 0's articles share does not pile them up: "
        "D2LPM's throughput with a min-match above the preface is at most 1.03 of that with 64 tokens",
        paper="not printed",
        whose="ours",
        ours=gain("min-match 1,024", STATED),
        unit="x",
        rule=below(1.03),
        why=f"hit rates {spelled(results, 'hit_rate', hits)}",
        elsewhere={longer: gain(f"{longer}, min-match 1,024", longer)},
        reach=throughput_ratio(
            results, {**of, "variant": "min-match 1,024"}, {**of, "variant": STATED}
        ),
    )
