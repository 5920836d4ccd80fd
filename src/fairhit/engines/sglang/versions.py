"""Differences of SGLang 0.5.20 to 0.5.22 from 0.5.23, detected by feature, never by version number.

0.5.22   no `Scheduler.send_abort_output`: the messages to the tokenizer are observed instead; a row that a
         request held before counts as taken (`num_held_rows`)
0.5.21   no `get_prefill_adder_class`: the name in the scheduler's module is replaced; `prefix_len` and
         `extend_end` of a request are the length of `prefix_indices` and the end of `extend_range`
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

from sglang.srt.managers import scheduler as module
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.utils import broadcast_pyobj

from fairhit.errors import ConfigError

# Constructor arguments newer than the plug-in registry; their attributes are read at each request.
_ARGUMENTS = ((Req, "routing_key"), (Req, "cache_salt"), (RadixKey, "cache_salt"))
_METHODS = ((RadixKey, "child_key_at"), (RadixKey, "match_at"))
_COUNTS_HELD = "num_held_rows" in signature(module.Scheduler.get_num_allocatable_reqs).parameters


def missing() -> list[str]:
    """Return the names that this SGLang lacks and without which the first request would end the engine."""
    lacks = [
        (owner, name)
        for owner, name in _ARGUMENTS
        if name not in signature(owner.__init__).parameters
    ]
    lacks += [(owner, name) for owner, name in _METHODS if not hasattr(owner, name)]
    if not (
        hasattr(module.Scheduler, "get_prefill_adder_class") or hasattr(module, "PrefillAdder")
    ):
        lacks.append((module.Scheduler, "get_prefill_adder_class"))
    return [f"{owner.__name__}.{name}" for owner, name in lacks]


def lacking(name: str) -> str:
    """Return the error message for a version without `name`."""
    return (
        f"--schedule-policy: this SGLang has no {name}; see the versions that the plug-in "
        "was tested with"
    )


def adapt_requests() -> None:
    """Give requests of older versions the attributes of 0.5.23. Once per process."""
    if hasattr(Req, "set_extend_range") and not hasattr(Req, "extend_end"):
        Req.prefix_len = property(lambda req: len(req.prefix_indices))
        Req.extend_end = property(lambda req: getattr(req.extend_range, "end", None))


def free_rows(scheduler: Any, adder: Any) -> int:
    """Return how many requests may run besides those of the batch."""
    more = {}
    if _COUNTS_HELD:
        more["num_held_rows"] = sum(req.kv.holds_kv for req in adder.can_run_list)
    batch = adder.running_batch
    return int(scheduler.get_num_allocatable_reqs(len(batch.reqs), running_batch=batch, **more))


def from_first_rank(value: Any) -> Any:
    """Return the first rank's `value` on each rank that schedules the same requests; all must call this."""
    from sglang.srt.distributed import communication_op

    if (share := getattr(communication_op, "attn_cp_tp_broadcast_pyobj", None)) is not None:
        return share([value])[0]
    group = communication_op.get_tp_group()
    return broadcast_pyobj([value], group.rank, group.cpu_group, src=group.ranks[0])[0]


def use_adder(make: Callable[..., Any]) -> None:
    """Replace the adder's class by `make` in versions without `get_prefill_adder_class`."""
    if not hasattr(module.Scheduler, "get_prefill_adder_class"):
        module.PrefillAdder = make


def observe_aborts(scheduler: Any, on_abort: Callable[[Any], None]) -> None:
    """Call `on_abort` for requests that end outside a batch, in versions without `send_abort_output`.

    Raises ConfigError if the messages to the tokenizer cannot be observed either.
    """
    if hasattr(module.Scheduler, "send_abort_output"):
        return
    sender: Any = getattr(getattr(scheduler, "ipc_channels", None), "send_to_tokenizer", None)
    if (stock := getattr(sender, "send_output", None)) is None:
        raise ConfigError(lacking("Scheduler.send_abort_output"))

    def send_output(output: Any, of: Any = None) -> None:
        stock(output, of)
        if isinstance(output, AbortReq) and isinstance(of, Req):
            on_abort(of)

    sender.send_output = send_output
