"""Where SGLang is told of us: the choices of `--schedule-policy`, and its Scheduler as it is made.

Integration points (SGLang 0.5.23): `HookRegistry.register`; `ServerArgs.add_cli_args(parser)`;
`GenerateReqInput.__getitem__(index)`; `Scheduler.__init__(server_args, ...)`. What else is used of the
Scheduler is listed in `scheduler.py`. A policy of SGLang's own is left exactly as it was, only that the
parts of a request keep its routing key.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Any

from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from fairhit.engines.sglang import POLICIES

SCHEDULER = "sglang.srt.managers.scheduler"
PARTS = "sglang.srt.managers.io_struct.GenerateReqInput.__getitem__"

logger = logging.getLogger(__name__)


def register() -> None:
    """Called in every process; only the scheduler's own has the module of the Scheduler by then."""
    HookRegistry.register("sglang.srt.server_args.ServerArgs.add_cli_args", add_policies)
    HookRegistry.register(PARTS, keep_client, HookType.AFTER)
    if SCHEDULER in sys.modules:
        HookRegistry.register(f"{SCHEDULER}.Scheduler.__init__", make_fair, HookType.AROUND)


def add_policies(_: None, parser: argparse.ArgumentParser) -> None:
    """Our names are choices, too, if the hooks took. Raises LookupError where there is no such flag."""
    actions = [each for each in parser._actions if each.dest == "schedule_policy"]
    if len(actions) != 1:
        raise LookupError(f"{len(actions)} flags are called --schedule-policy")
    if not hasattr(GenerateReqInput.__getitem__, "__wrapped__"):
        logger.error("fairhit: --schedule-policy: no hook on %s", PARTS)
        return
    actions[0].choices = [*(actions[0].choices or ()), *POLICIES]


def keep_client(part: Any, whole: Any, *_: object) -> None:
    """An answer of n > 1 is for whom all are, as a prompt of a list; SGLang copies all fields but this."""
    if getattr(part, "routing_key", None) is None:
        part.routing_key = getattr(whole, "routing_key", None)


def make_fair(
    original: Callable[..., None], scheduler: Any, server_args: Any, *args: Any, **kwargs: Any
) -> None:
    """What is asked to follow one of our policies is a FairScheduler from the beginning."""
    if server_args.schedule_policy in POLICIES:
        try:
            from fairhit.engines.sglang.scheduler import take_over
        except ImportError as error:
            raise SystemExit(
                f"fairhit: --schedule-policy: this SGLang is too old: {error}"
            ) from None

        take_over(scheduler, server_args)
    original(scheduler, server_args, *args, **kwargs)
