"""Seeded cases for a bare vLLM scheduler: requests, adapters, KV loads, sessions, aborts, preemption.

A case is a script, drawn before it is run: what arrives and what is aborted at which step. So the same
script runs under stock vLLM, and the answer to "who finishes" can be compared.
"""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from vllm.config import KVTransferConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import KVConnectorOutput

from fairhit.engines.vllm import FairScheduler
from tests.unit.engines.vllm.bare_vllm import (
    BLOCK,
    RequestStatus,
    StockScheduler,
    Trace,
    make_request,
    make_scheduler,
)
from tests.unit.engines.vllm.vllm_connector import QuietConnector

# Steps without a scheduled token after which nothing more is expected: every load is done before.
IDLE_STEPS = 250
STEPS = 6000

Op = tuple[str, Any]


class Asked(NamedTuple):
    """A request, or the next input of a session."""

    name: str
    adapter: int | None
    client: str
    prompt: list[int]
    tokens: int
    resumable: bool


@dataclass(frozen=True, kw_only=True)
class Case:
    """A configuration and a script; `seed` draws both."""

    seed: int
    sizes: dict[str, Any]
    settings: dict[str, Any]
    slots: int  # for LoRA adapters; 0: without LoRA
    connector: str  # none, sync, async or both
    policy: str  # what becomes of a failed load: fail or recompute
    steps: list[list[Op]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.sizes} {self.settings} slots={self.slots} "
            f"connector={self.connector} policy={self.policy}"
        )


def case_of(seed: int) -> Case:
    """The case that `seed` draws."""
    rng = random.Random(seed)
    longest = rng.choice([40, 120])
    case = Case(
        seed=seed,
        sizes={
            "blocks": rng.choice([longest // BLOCK * 2 + 4, longest // BLOCK * 4 + 4, 256]),
            "max_num_seqs": rng.randint(1, 5),
            "budget": rng.choice([16, 64, 512]),
            "caching": rng.random() < 0.7,
            "run_ahead": rng.random() < 0.5,
        },
        settings={"scheduler": rng.choice(["dlpm", "dlpm", "dlpm-predict", "vtc", "drr", "lpm"])},
        slots=rng.choice([0, 1, 1, 2, 2, 3]),
        connector=rng.choice(["none", "sync", "async", "async", "both"]),
        policy=rng.choice(["fail", "recompute"]),
    )
    if case.settings["scheduler"] in {"dlpm", "dlpm-predict", "drr"}:
        case.settings["quantum"] = rng.choice([20, 500])
    if case.settings["scheduler"] != "lpm":
        case.settings["adapter_turn"] = rng.choice([0, 40, 200, 16_384])
    _write_script(case, rng, longest)
    return case


def _write_script(case: Case, rng: random.Random, longest: int) -> None:
    adapters = [None, *range(1, case.slots + 1 + rng.randint(1, 3))] if case.slots else [None]
    open_sessions: dict[str, tuple[int | None, int]] = {}  # adapter, and tokens so far at most
    names: list[str] = []
    with_sessions, with_aborts = rng.random() < 0.5, rng.random() < 0.6
    busy = rng.choice([0.2, 0.6, 1.5])
    for _ in range(rng.choice([30, 80, 150])):
        ops: list[Op] = []
        while rng.random() < busy / (1 + busy):
            name, adapter = f"r{len(names)}", rng.choice(adapters)
            names.append(name)
            is_session = with_sessions and rng.random() < 0.3
            prompt = [rng.randrange(6)] * rng.randint(1, longest // 2)
            tokens = rng.randint(1, longest // 4)
            if is_session:
                prompt, tokens = prompt[: longest // 8], 1 + tokens % 4
                open_sessions[name] = adapter, len(prompt) + tokens
            asked = Asked(name, adapter, rng.choice("xyz"), prompt, tokens, is_session)
            ops.append(("add", asked))
        for name, (adapter, used) in list(open_sessions.items()):
            tokens, length = rng.randint(1, 4), rng.randint(1, longest // 8)
            if rng.random() < 0.1 or used + tokens + length > longest:
                del open_sessions[name]
                ops.append(("end", Asked(name, adapter, "x", [1], 1, False)))
            elif rng.random() < 0.2:
                open_sessions[name] = adapter, used + tokens + length
                words = [rng.randrange(6)] * length
                ops.append(("turn", Asked(name, adapter, "x", words, tokens, True)))
        if with_aborts and names and rng.random() < 0.15:
            ops.append(("abort", rng.choice(names)))
        if rng.random() < 0.01:
            ops.append(("reset", rng.random() < 0.5))
        case.steps.append(ops)
    case.steps.append([("end", Asked(name, None, "x", [1], 1, False)) for name in open_sessions])


class SeededConnector(QuietConnector):
    """Loads that the case's seed decides: whether, how long, whether at once, and whether they fail."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        extra = self._kv_transfer_config.kv_connector_extra_config
        self._seed, self._kind = extra["seed"], extra["kind"]
        self._steps = 0
        self._asked_at: dict[str, int] = {}
        self._slowest = random.Random(extra["seed"]).choice([12, 12, 200])
        self.loading: dict[str, list[int]] = {}  # the blocks that are loaded into, by request
        self.sending: set[str] = set()  # ended, with blocks that are still read from

    def _draw(self, name: str, what: str) -> random.Random:
        return random.Random(f"{self._seed} {name} {what}")

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        name = request.request_id
        rng = self._draw(name, f"match {request.num_preemptions}")
        asked_for = self._steps - self._asked_at.setdefault(name, self._steps)
        if rng.random() < 0.2 and asked_for < rng.choice([2, 12, self._slowest]):
            return None, False  # it does not know yet
        left = (request.num_tokens - 1 - num_computed_tokens) // BLOCK * BLOCK
        if rng.random() < 0.4 or left <= 0:
            return 0, False
        is_async = {"sync": False, "async": True, "both": rng.random() < 0.5}[self._kind]
        whole = is_async and num_computed_tokens + left < request.num_tokens
        length = left if whole else rng.randrange(BLOCK, left + 1, BLOCK)
        return length, is_async

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            self.loading[request.request_id] = list(blocks.get_block_ids()[0])

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        self._steps += 1
        return super().build_connector_meta(scheduler_output)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        name = request.request_id
        is_sent = bool(block_ids) and self._draw(name, "send").random() < 0.3
        if is_sent and name not in self.loading:
            self.sending.add(name)
        return name in self.sending, None

    def update_connector_output(self, connector_output: Any) -> None:
        for name in connector_output.finished_recving:
            del self.loading[name]


class Run(Trace):
    """A case under one kind of scheduler."""

    def __init__(self, case: Case, *, is_fair: bool) -> None:
        stock = AsyncScheduler if case.sizes["run_ahead"] else StockScheduler
        transfer = None
        if case.connector != "none":
            transfer = KVTransferConfig(
                kv_connector="SeededConnector",
                kv_connector_module_path=__name__,
                kv_role="kv_both",
                kv_load_failure_policy=case.policy,
                kv_connector_extra_config={"seed": case.seed, "kind": case.connector},
            )
        settings = case.settings if is_fair else {}
        run_ahead = case.sizes["run_ahead"]
        super().__init__(
            make_scheduler(
                FairScheduler if is_fair else stock, kv_transfer=transfer, **case.sizes, **settings
            ),
            run_ahead=run_ahead,
        )
        if case.slots:
            self.scheduler.lora_config = SimpleNamespace(max_loras=case.slots)
        self.case = case
        self.aborted: set[str] = set()
        self.asked: set[str] = set()
        self.sessions: set[str] = set()
        self.reached: Counter[str] = Counter()  # how often what happened that a case is for
        self._rng = random.Random(f"{case.seed} loads")
        self._began: dict[str, list[int]] = {}
        self._done_at: dict[str, int] = {}
        self.steps = 0

    def drain(self) -> str:
        """Run the script and then until nothing is left; what is wrong, or an empty text."""
        for ops in self.case.steps:
            for op in ops:
                getattr(self, f"_{op[0]}")(op[1])
            self.step()
        idle = 0
        while self.scheduler.requests or self._in_flight:
            output = self.step()
            idle = 0 if output.num_scheduled_tokens else idle + 1
            if idle > IDLE_STEPS or self.steps > STEPS:
                left = {name: one.status.name for name, one in self.scheduler.requests.items()}
                return f"left at step {self.steps}: {left}, running {self.running}"
        missing = self.asked - self.finished.keys() - self.aborted
        return f"lost: {sorted(missing)}" if missing else ""

    def _add(self, asked: Asked) -> None:
        (self.sessions if asked.resumable else self.asked).add(asked.name)
        self.add(self._request(asked))

    def _deliver(self, output: Any, sampled: Any) -> None:
        for name in self.sessions:  # each of their turns finishes
            self.finished.pop(name, None)
        super()._deliver(output, sampled)

    def _turn(self, asked: Asked) -> None:
        """The next input of a session, or its end: that is one which is not resumable."""
        if self._is_live(asked.name):
            self.reached["session turns"] += asked.resumable
            self.add(self._request(asked))

    _end = _turn

    def _abort(self, name: str) -> None:
        if self._is_live(name):
            self.aborted.add(name)
            self.reached["aborts"] += 1
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def _reset(self, with_running: bool) -> None:
        with suppress(RuntimeError):  # where a connector holds blocks, which vLLM refuses so
            self.scheduler.reset_prefix_cache(reset_running_requests=with_running)

    def _is_live(self, name: str) -> bool:
        known = self.scheduler.requests.get(name)
        return known is not None and not known.is_finished()

    def _request(self, asked: Asked) -> Any:
        request = make_request(
            asked.name,
            asked.prompt,
            client=asked.client,
            max_tokens=asked.tokens,
            caching=self.case.sizes["caching"],
            resumable=asked.resumable,
        )
        if asked.adapter:
            request.lora_request = SimpleNamespace(
                lora_int_id=asked.adapter, lora_name=f"a{asked.adapter}", lora_path=""
            )
        return request

    def _sampled(self, planned: Any, sample: Any) -> Any:
        """Also what the connector's loads and sends come to in this step."""
        sampled = super()._sampled(planned, sample)
        self.steps += 1
        connector = self.scheduler.connector
        if connector is None:
            return sampled
        output = KVConnectorOutput()
        received: set[str] = set()
        for name, blocks in list(connector.loading.items()):
            known = self.scheduler.requests.get(name)
            fails = self._rng.random() < 0.15
            is_async = known is not None and (
                known.status == RequestStatus.WAITING_FOR_REMOTE_KVS or known.is_finished()
            )
            if is_async and self._began.get(name) is not blocks:
                self._began[name] = blocks
                self._done_at[name] = self.steps + self._rng.randint(0, 8)
            if is_async and self.steps != self._done_at[name]:
                continue  # not yet, or what was said of it is still to be handled
            self.reached["async loads" if is_async else "sync loads"] += 1
            if is_async:
                received.add(name)
            else:
                del connector.loading[name]
            if fails and known is not None and not known.is_finished():
                self.reached["failed loads"] += 1
                output.invalid_block_ids.add(self._rng.choice(blocks))
        output.finished_recving = received
        output.finished_sending = {name for name in connector.sending if self._rng.random() < 0.3}
        connector.sending -= output.finished_sending
        sampled.kv_connector_output = output
        return sampled
