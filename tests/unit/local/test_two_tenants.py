"""The numbers of the flood, on made-up records, and that its prompts are what they claim to be."""

import itertools
import json

from fairhit.cli import console
from fairhit.gateway.settings import GatewaySettings
from fairhit.local import serve
from fairhit.local.demo import two_tenants as flood
from fairhit.local.demo.closed_loop import Served

SECOND = 1_000_000


def steady(tenant: str, *, per_second: int, engine: str, extend: int) -> list[Served]:
    """Requests that wait three seconds each, one after the other begun, for 40 seconds."""
    return [
        Served(
            tenant=tenant,
            engine=engine,
            sent_us=begun - 3 * SECOND,
            first_us=begun,
            done_us=begun + SECOND,
            prompt_len=400,
            cached_len=400 - extend,
            output_len=0,
            pieces_us=(begun, begun, begun + SECOND),
        )
        for begun in range(0, 40 * SECOND, SECOND // per_second)
    ]


def test_numbers_of_a_run():
    records = [
        record
        for engine in ("engine-0", "engine-1")
        for record in [
            *steady("heavy", per_second=4, engine=engine, extend=100),
            *steady("light", per_second=2, engine=engine, extend=100),
        ]
    ]
    window = (10 * SECOND, 30 * SECOND)

    result = flood.summarize("fcfs", "round-robin", records, window, failures=0)

    assert result.backlogged_s == 20
    assert result.service_ratio == 2.0
    assert result.hit_rate == 0.75
    assert result.tenants["heavy"].requests_per_s == 8
    assert result.tenants["light"].latency_ms_p50 == 4000
    # Heavy gets 400 a second and light 200, for 20 seconds.
    assert abs(result.gap_per_engine["engine-0"] - 20 * 200) <= 200
    assert result.bound_per_engine == 2 * (400 + 2 * 4096 + flood.QUANTUM)
    assert result.bound == 2 * result.bound_per_engine
    assert json.loads(json.dumps(flood.as_rows([result])))[0]["service_ratio"] == 2.0
    assert console.tenants_table([result]).row_count == 2
    assert console.sharing_table([result]).row_count == 1


def test_a_starved_tenant_is_no_division_by_zero():
    """LPM may serve one of them nothing at all."""
    heavy = steady("heavy", per_second=4, engine="engine-0", extend=100)
    light = [
        Served(
            tenant="light", engine="engine-0", sent_us=0, first_us=50 * SECOND, done_us=51 * SECOND,
            prompt_len=400, cached_len=0, output_len=0, pieces_us=(50 * SECOND, 51 * SECOND),
        )
    ]  # fmt: skip

    result = flood.summarize("lpm", "least-loaded", [*heavy, *light], (0, 30 * SECOND), failures=0)

    assert result.service_ratio is None
    assert console.tenants_table([result]).row_count == 2
    assert console.sharing_table([result]).row_count == 1
    assert result.tenants["light"].requests_per_s == 0
    assert result.tenants["light"].latency_ms_p50 == 51_000


def test_prompts_share_prefixes_inside_a_tenant_only_and_repeat_with_the_seed():
    def prompts(tenant: str, seed: int) -> list[tuple[str, str]]:
        bodies = itertools.islice(flood.bodies(tenant, seed)(0), 50)
        messages = [json.loads(body)["messages"] for body in bodies]
        return [(system["content"], user["content"]) for system, user in messages]

    heavy, light = prompts("heavy", 0), prompts("light", 0)

    assert {system for system, _ in heavy}.isdisjoint(system for system, _ in light)
    assert len({system for system, _ in heavy}) == flood.PREFIXES["heavy"]
    assert len({question for _, question in heavy}) == 50
    assert prompts("heavy", 0) == heavy
    assert prompts("heavy", 1) != heavy


def changed(policy: tuple[str, str]) -> dict[str, object]:
    """What the service of a policy is told, against what `fairhit serve` does by itself."""
    given, plain = flood.options(*policy), serve.ServeOptions(gateway=GatewaySettings())
    found = {
        name: getattr(given, name)
        for name in ("engines", "model", "quantum", "engine_arguments")
        if getattr(given, name) != getattr(plain, name)
    }
    dumped, defaults = vars(given.gateway), vars(plain.gateway)
    return found | {name: value for name, value in dumped.items() if value != defaults[name]}


def test_every_setting_that_is_not_the_default_is_stated():
    """Or the table would show a product that nobody gets by default."""
    stated = {setting.flag: setting for setting in flood.SETTINGS}

    # Any free port, and tenants that can be told apart: that changes nothing about who gets what.
    found = changed(("dlpm", "d2lpm"))
    assert found.pop("port") == 0
    assert len(found.pop("tenant_api_key")) == 2
    assert found == {
        "queue": stated["--queue"].value,
        "quantum": stated["--quantum"].value,
        "worker_quantum": stated["--worker-quantum"].value,
        "engine_arguments": (
            "--stream-interval", str(stated["--engine-args=--stream-interval"].value),
        ),
    }  # fmt: skip
    assert len(stated) == 4
    assert (stated["--quantum"].default, stated["--worker-quantum"].default) == (4096, 16384)
    # The others differ in their policy, and have no quantum to set.
    assert changed(("fcfs", "round-robin")).keys() - found.keys() == {
        "port", "tenant_api_key", "policy",
    }  # fmt: skip
