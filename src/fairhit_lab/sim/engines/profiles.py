"""The simulated engines by name, made from the settings of a simulation."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import FairQueue
from fairhit.core.policy import Policy
from fairhit.core.request import Request
from fairhit.core.service import Weights
from fairhit.errors import ConfigError
from fairhit.policies import make_policy
from fairhit_lab.baselines import ALL_SCHEDULERS, ALL_WITHOUT_CREDIT, FLEET
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.engines.ideal import IdealHost
from fairhit_lab.sim.engines.interface import SimulatedEngine
from fairhit_lab.sim.engines.settings_filter import given_settings
from fairhit_lab.sim.engines.sglang import SglangHost
from fairhit_lab.sim.engines.vllm import VllmHost
from fairhit_lab.sim.engines.vtc_artifact import ArtifactHost
from fairhit_lab.sim.memory.admission import Reserve
from fairhit_lab.sim.memory.block_pool import BlockPool
from fairhit_lab.sim.memory.block_tree import BlockTree
from fairhit_lab.sim.memory.token_pool import TokenPool

# Tokens in a block of vLLM's KV cache: its default on GPUs.
BLOCK_LEN = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Settings that all replicas of a simulation share."""

    config: SimConfig
    weights: Weights
    capacity: int  # M
    output_len: Callable[[Request], int]  # the true output length, for policies that take it
    # Where all replicas share one policy: its view for a replica and its cache.
    policy: Callable[[RadixTree | BlockCache, int], Policy] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineWithCache:
    """A host, and its cache for routers that follow it."""

    host: SimulatedEngine
    cache: RadixTree


Make = Callable[[Parts, int], EngineWithCache]


def make_engine(parts: Parts, number: int) -> EngineWithCache:
    """Return the empty engine of replica `number`. Raises ConfigError for settings it does not have."""
    make = HOSTS.get(parts.config.host)
    if make is None:
        raise ConfigError(f"host: expected one of {', '.join(HOSTS)}, got {parts.config.host!r}")
    return make(parts, number)


def scheduler_over(
    parts: Parts, cache: RadixTree | BlockCache, number: int, *, max_misfits: int | None
) -> FairQueue:
    """Return the fair queue of replica `number`, its policy over `cache`."""
    config = parts.config
    if parts.policy is not None:
        return FairQueue(parts.policy(cache, number), max_skips=max_misfits)
    given = given_settings(
        "scheduler",
        config.scheduler,
        ALL_SCHEDULERS,
        flags=config.of("scheduler"),
        shared={
            "weights": parts.weights,
            "cost": config.cost,
            "output_len": parts.output_len,
            "seed": Random(f"{config.seed}/{number}").getrandbits(32),
        },
    )
    made: Policy = make_policy(config.scheduler, cache=cache, policies=ALL_SCHEDULERS, **given)
    return FairQueue(made, max_skips=max_misfits)


def _ideal(parts: Parts, number: int) -> EngineWithCache:
    config = parts.config
    if config.admission not in {None, "reserve"}:
        raise ConfigError(f"admission: host ideal has reserve only, got {config.admission!r}")
    tree = RadixTree()
    memory = Reserve(tree, capacity=parts.capacity, shares=config.inbatch != "compute")
    scheduler = scheduler_over(parts, tree, number, max_misfits=config.max_misfits)
    host = IdealHost(
        scheduler=scheduler,
        memory=memory,
        max_running=config.max_running,
        skips_unfitting=config.skips_unfitting,
    )
    return EngineWithCache(host=host, cache=tree)


def _artifact(parts: Parts, number: int) -> EngineWithCache:
    config = parts.config
    if config.admission not in {None, "artifact"}:
        raise ConfigError(
            f"admission: host artifact has its own (artifact) only, got {config.admission!r}"
        )
    if config.misfit == "skip" or config.inbatch is not None:
        raise ConfigError(
            "host artifact stops at a request that does not fit and has no cache to share"
        )
    tree = RadixTree()  # always empty
    scheduler = scheduler_over(parts, tree, number, max_misfits=config.max_misfits)
    host = ArtifactHost(scheduler=scheduler, pool=parts.capacity, max_running=config.max_running)
    return EngineWithCache(host=host, cache=tree)


def _vllm(parts: Parts, number: int) -> EngineWithCache:
    config = parts.config
    _check_optimistic(config)
    if parts.policy is not None:
        # It compares requests by identity, and their prompts by token.
        raise ConfigError(
            f"router {config.router}: not with host vllm, which knows prompts by blocks"
        )
    if parts.capacity < BLOCK_LEN:
        raise ConfigError(
            f"kv-tokens: host vllm needs a block of {BLOCK_LEN} tokens, got {parts.capacity}"
        )
    pool = BlockPool(blocks=parts.capacity // BLOCK_LEN, block_size=BLOCK_LEN)
    is_followed = config.workers > 1 or config.router == FLEET
    mirror = BlockTree(pool.cache) if is_followed else None
    host = VllmHost(
        scheduler_over(parts, pool.cache, number, max_misfits=config.max_misfits),
        pool,
        max_num_seqs=config.max_running,
        max_num_batched_tokens=config.batch_tokens or _vllm_budget(config),
        picks_victims=config.scheduler not in ALL_WITHOUT_CREDIT,
        mirror=mirror,
    )
    return EngineWithCache(host=host, cache=mirror.tree if mirror else RadixTree())


def _sglang(parts: Parts, number: int) -> EngineWithCache:
    config = parts.config
    _check_optimistic(config)
    pool = TokenPool(RadixTree(), capacity=parts.capacity)
    host = SglangHost(
        scheduler_over(parts, pool.tree, number, max_misfits=config.max_misfits),
        pool,
        max_running=config.max_running,
        chunk_len=config.batch_tokens or _sglang_chunk(config),
    )
    return EngineWithCache(host=host, cache=pool.tree)


def _check_optimistic(config: SimConfig) -> None:
    """Refuse other rules than the engine's own. Raises ConfigError."""
    if config.admission not in {None, "optimistic"}:
        raise ConfigError(
            f"admission: host {config.host} has its own (optimistic) only, got {config.admission!r}"
        )
    if config.misfit == "skip" or config.inbatch is not None:
        raise ConfigError(
            f"host {config.host} stops at a request that does not fit and shares prefixes in its own way"
        )


def _gpu_gib(config: SimConfig) -> float | None:
    """Return the memory of the simulated GPU, None without one."""
    name, _, _ = config.step_time.partition(":")
    gpu = config.constants.gpus.get(name)
    return gpu.memory_gib if gpu else None


def _vllm_budget(config: SimConfig) -> int:
    """Return the server's default `max_num_batched_tokens` (vLLM 0.32) for the GPU."""
    is_large = (_gpu_gib(config) or 0) >= 70 and not config.step_time.startswith("a100")
    return 8192 if is_large else 2048


def _sglang_chunk(config: SimConfig) -> int:
    """Return SGLang's default `chunked_prefill_size` for the GPU."""
    return 2048 if (_gpu_gib(config) or 80) < 35 else 8192


HOSTS: dict[str, Make] = {
    "ideal": _ideal,
    "artifact": _artifact,
    "vllm": _vllm,
    "sglang": _sglang,
}
