"""The engines a replica can be: a host profile by name, made from the settings of a simulation."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fairlead.core.admission import Reserve
from fairlead.core.block_cache import BlockCache
from fairlead.core.protocols import Policy
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request
from fairlead.core.scheduler import Scheduler
from fairlead.core.service import Weights
from fairlead.errors import ConfigError
from fairlead.schedulers import OWED_ALIKE, SCHEDULERS, make_policy
from fairlead.sim.artifact import ArtifactHost
from fairlead.sim.block_pool import BlockPool
from fairlead.sim.block_tree import BlockTree
from fairlead.sim.config import SimConfig
from fairlead.sim.given import given_settings
from fairlead.sim.host import Host
from fairlead.sim.ideal import IdealHost
from fairlead.sim.sglang import SglangHost
from fairlead.sim.token_pool import TokenPool
from fairlead.sim.vllm import VllmHost

# Tokens in a block of vLLM's KV cache: its default on GPUs.
BLOCK_LEN = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What every replica of one simulation shares."""

    config: SimConfig
    weights: Weights
    capacity: int  # M
    output_len: Callable[[Request], int]  # the truth, for schedulers that are told it
    # Where the policies of all replicas are one: that of a replica, over its cache.
    policy: Callable[[RadixTree | BlockCache, int], Policy] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """A host, and its cache for whoever follows it."""

    host: Host
    cache: RadixTree


Make = Callable[[Parts, int], Engine]


def make_engine(parts: Parts, number: int) -> Engine:
    """The engine of replica `number`, empty. Raises ConfigError for settings it does not have."""
    make = HOSTS.get(parts.config.host)
    if make is None:
        raise ConfigError(f"host: expected one of {', '.join(HOSTS)}, got {parts.config.host!r}")
    return make(parts, number)


def scheduler_over(
    parts: Parts, cache: RadixTree | BlockCache, number: int, *, max_misfits: int | None
) -> Scheduler:
    """The scheduler of replica `number`, its policy over `cache`."""
    config = parts.config
    if parts.policy is not None:
        return Scheduler(parts.policy(cache, number), max_misfits=max_misfits)
    given = given_settings(
        f"scheduler {config.scheduler}",
        SCHEDULERS.get(config.scheduler),
        flags=config.of("scheduler"),
        shared={
            "weights": parts.weights,
            "cost": config.cost,
            "output_len": parts.output_len,
            "seed": Random(f"{config.seed}/{number}").getrandbits(32),
        },
    )
    made: Policy = make_policy(config.scheduler, cache=cache, **given)
    return Scheduler(made, max_misfits=max_misfits)


def _ideal(parts: Parts, number: int) -> Engine:
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
        skips_misfits=config.skips_misfits,
    )
    return Engine(host=host, cache=tree)


def _artifact(parts: Parts, number: int) -> Engine:
    config = parts.config
    if config.admission not in {None, "artifact"}:
        raise ConfigError(
            f"admission: host artifact has its own (artifact) only, got {config.admission!r}"
        )
    if config.misfit == "skip" or config.inbatch is not None:
        raise ConfigError("host artifact stops at a misfit and has no cache to share")
    tree = RadixTree()  # and nothing is ever in it
    scheduler = scheduler_over(parts, tree, number, max_misfits=config.max_misfits)
    host = ArtifactHost(scheduler=scheduler, pool=parts.capacity, max_running=config.max_running)
    return Engine(host=host, cache=tree)


def _vllm(parts: Parts, number: int) -> Engine:
    config = parts.config
    _check_optimistic(config)
    if parts.policy is not None:
        # It compares requests by the object, and their prompts by the token.
        raise ConfigError("router central-dlpm: not with host vllm, which knows prompts by blocks")
    if parts.capacity < BLOCK_LEN:
        raise ConfigError(
            f"kv-tokens: host vllm needs a block of {BLOCK_LEN} tokens, got {parts.capacity}"
        )
    pool = BlockPool(blocks=parts.capacity // BLOCK_LEN, block_size=BLOCK_LEN)
    mirror = BlockTree(pool.cache) if config.workers > 1 else None
    host = VllmHost(
        scheduler_over(parts, pool.cache, number, max_misfits=config.max_misfits),
        pool,
        max_num_seqs=config.max_running,
        max_num_batched_tokens=config.batch_tokens or _vllm_budget(config),
        picks_victims=config.scheduler not in OWED_ALIKE,
        mirror=mirror,
    )
    return Engine(host=host, cache=mirror.tree if mirror else RadixTree())


def _sglang(parts: Parts, number: int) -> Engine:
    config = parts.config
    _check_optimistic(config)
    pool = TokenPool(RadixTree(), capacity=parts.capacity)
    host = SglangHost(
        scheduler_over(parts, pool.tree, number, max_misfits=config.max_misfits),
        pool,
        max_running=config.max_running,
        chunk_len=config.batch_tokens or _sglang_chunk(config),
    )
    return Engine(host=host, cache=pool.tree)


def _check_optimistic(config: SimConfig) -> None:
    """An engine's own rules are what its profile is for. Raises ConfigError."""
    if config.admission not in {None, "optimistic"}:
        raise ConfigError(
            f"admission: host {config.host} has its own (optimistic) only, got {config.admission!r}"
        )
    if config.misfit == "skip" or config.inbatch is not None:
        raise ConfigError(
            f"host {config.host} stops at a misfit and shares prefixes in its own way"
        )


def _gpu_gib(config: SimConfig) -> float | None:
    """The memory of the GPU that is simulated, if one is."""
    name, _, _ = config.step_time.partition(":")
    gpu = config.constants.gpus.get(name)
    return gpu.memory_gib if gpu else None


def _vllm_budget(config: SimConfig) -> int:
    """The server's default `max_num_batched_tokens` (vLLM 0.32) for the GPU."""
    is_large = (_gpu_gib(config) or 0) >= 70 and not config.step_time.startswith("a100")
    return 8192 if is_large else 2048


def _sglang_chunk(config: SimConfig) -> int:
    """SGLang's default `chunked_prefill_size` for the GPU."""
    return 2048 if (_gpu_gib(config) or 80) < 35 else 8192


HOSTS: dict[str, Make] = {
    "ideal": _ideal,
    "artifact": _artifact,
    "vllm": _vllm,
    "sglang": _sglang,
}
