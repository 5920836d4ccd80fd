"""Names of routing policies: ours, and those of other gateways that have one of ours for an equivalent.

The equivalent serves the same purpose; its algorithm is ours (docs/reference/routers.md has the table).
"""

import difflib
from typing import Annotated, Final, Literal, cast, get_args

from pydantic import AfterValidator, BeforeValidator

PolicyName = Literal["d2lpm", "round-robin", "least-loaded", "power-of-two", "sticky"]
POLICIES: Final[tuple[str, ...]] = get_args(PolicyName)

# Spelt otherwise, and the very same algorithm.
_SPELT: Final = {"roundrobin": "round-robin"}
# Another gateway's name -> ours: who asks for it is told what it became.
_EQUIVALENT: Final[dict[str, PolicyName]] = {
    # Where the prefix is cached, by sglang-router, smg, vllm-router, production-stack, AIBrix, Dynamo.
    **dict.fromkeys(
        ("cache-aware", "prefix-hash", "kv-aware", "prefixaware", "kvaware", "prefix-cache",
         "prefix-aware", "kv"),
        "d2lpm",
    ),
    # Where least is in flight, by smg, AIBrix, LiteLLM.
    **dict.fromkeys(("least-load", "least-request", "least-busy"), "least-loaded"),
    # By a key that the caller sends: sglang-router, smg, vllm-router, production-stack, AIBrix.
    **dict.fromkeys(
        ("manual", "consistent-hash", "consistent-hashing", "rendezvous-hash", "session",
         "session-affinity"),
        "sticky",
    ),
    # Evenly, whatever is where: sglang-router, smg, vllm-router, AIBrix, LiteLLM.
    **dict.fromkeys(("random", "simple-shuffle"), "round-robin"),
}  # fmt: skip


def spelt(value: object) -> object:
    """The name with dashes and in small letters."""
    name = str(value).replace("_", "-").lower()
    return _SPELT.get(name, name)


def known_policy(name: str) -> str:
    """A name of ours, or one that has an equivalent. Raises ValueError, with the names there are."""
    known = [*POLICIES, *_EQUIVALENT]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        theirs = ", ".join(_EQUIVALENT)
        raise ValueError(
            f"expected one of {', '.join(POLICIES)}, or of other gateways' {theirs}, got {name!r}{meant}"
        )
    return name


def router_of(name: str) -> PolicyName:
    """Our router for a name that is known."""
    return cast("PolicyName", name) if name in POLICIES else _EQUIVALENT[name]


Policy = Annotated[str, BeforeValidator(spelt), AfterValidator(known_policy)]
