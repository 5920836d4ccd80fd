"""The hooks into SGLang: the choices of `--schedule-policy`, and the construction of its Scheduler.

Integration points (SGLang 0.5.23): `HookRegistry.register`; `ServerArgs.add_cli_args(parser)`;
`GenerateReqInput.__getitem__(index)`; `Scheduler.__init__(server_args, ...)`. `scheduler.py` lists what else
is used of the Scheduler. SGLang's own policies are unchanged, except that the parts of a request keep its
routing key.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Any

from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from fairhit.policies import IN_ENGINES

# SGLang keeps its own fcfs and lpm.
POLICIES = tuple(name for name in IN_ENGINES if name not in {"fcfs", "lpm"})

SCHEDULER = "sglang.srt.managers.scheduler"
PARTS = "sglang.srt.managers.io_struct.GenerateReqInput.__getitem__"

logger = logging.getLogger(__name__)


def register() -> None:
    """Register the hooks in this process; only a scheduler process has imported the Scheduler by now."""
    HookRegistry.register("sglang.srt.server_args.ServerArgs.add_cli_args", add_policies)
    HookRegistry.register(PARTS, keep_client, HookType.AFTER)
    if SCHEDULER in sys.modules:
        HookRegistry.register(f"{SCHEDULER}.Scheduler.__init__", make_fair, HookType.AROUND)


def add_policies(_: None, parser: argparse.ArgumentParser) -> None:
    """Add our policies to the choices, if the hooks took effect. Raises LookupError without such a flag."""
    actions = [each for each in parser._actions if each.dest == "schedule_policy"]
    if len(actions) != 1:
        raise LookupError(f"{len(actions)} flags are called --schedule-policy")
    if not hasattr(GenerateReqInput.__getitem__, "__wrapped__"):
        logger.error("fairhit: --schedule-policy: no hook on %s", PARTS)
        return
    actions[0].choices = [*(actions[0].choices or ()), *POLICIES]


def keep_client(part: Any, whole: Any, *_: object) -> None:
    """Copy the routing key to a part of a request (n > 1, a list of prompts), which SGLang forgets to do."""
    if getattr(part, "routing_key", None) is None:
        part.routing_key = getattr(whole, "routing_key", None)


def make_fair(
    original: Callable[..., None], scheduler: Any, server_args: Any, *args: Any, **kwargs: Any
) -> None:
    """Turn the Scheduler into a fair one before its construction, if one of our policies is asked for."""
    if server_args.schedule_policy in POLICIES:
        try:
            from fairhit.engines.sglang.scheduler import take_over
        except ImportError as error:
            raise SystemExit(
                f"fairhit: --schedule-policy: this SGLang is too old: {error}"
            ) from None

        take_over(scheduler, server_args)
    original(scheduler, server_args, *args, **kwargs)
