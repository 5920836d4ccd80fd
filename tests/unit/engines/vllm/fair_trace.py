"""A bare vLLM under FairScheduler, and its ledger beside what vLLM itself reported."""

from tests.unit.engines.vllm.bare_vllm import Trace, make_scheduler

from fairhit.core.service import Service
from fairhit.engines.vllm import FairScheduler


def prompt(prefix: int, own: int, *, shared: int = 64, length: int = 100) -> list[int]:
    """`shared` tokens that every prompt with this prefix begins with, then tokens of its own."""
    return [prefix] * shared + [own + 100] * (length - shared)


def fair(*, run_ahead: bool = False, **options) -> Trace:
    made = make_scheduler(FairScheduler, run_ahead=run_ahead, **options)
    return Trace(made, run_ahead=run_ahead)


def service(trace: Trace, client: str) -> Service:
    return trace.scheduler._fair.service(client)


def deficit(trace: Trace, client: str) -> float:
    return trace.scheduler._deficit_of(client)


def assert_exact(trace: Trace, inputs: dict[str, tuple[str, int]]) -> None:
    """The ledger is what vLLM itself reported: hits of first admissions, and tokens handed out."""
    expected: dict[str, Service] = {}
    for name, hit in trace.admitted:
        client, length = inputs[name]
        received = expected.setdefault(client, Service())
        received.extend_len += length - hit
        received.cached_len += hit
    for name, emitted in trace.emitted.items():
        expected.setdefault(inputs[name][0], Service()).output_len += emitted
    for client, received in expected.items():
        assert received == service(trace, client), client
