"""Colours of policies, the same in every figure, distinguishable by colour-blind readers.

Most hues are those of Okabe and Ito (2008). DLPM and fair have the strongest.
"""

import re
from collections.abc import Sequence

from fairhit_lab.studies.shared.results import Label

POLICIES: dict[str, str] = {
    "dlpm": "#d55e00",
    "d2lpm": "#d55e00",
    "fair": "#6a3d9a",
    "vtc": "#0072b2",
    "vtc-predict": "#56b4e9",
    "vtc-oracle": "#003f5c",
    "vtc-noisy": "#8aa9c4",
    "lpm": "#009e73",
    "rr+lpm": "#009e73",
    "preble": "#cc79a7",
    "preble-groups": "#cc79a7",
    "preble (ratio)": "#8a4a75",
    "fcfs": "#444444",
    "rpm": "#e69f00",
    "lcf": "#b8a800",
    "drr": "#8c564b",
    "central-dlpm": "#7a2f00",
    "central": "#7a2f00",
    "central-fair": "#b294c7",
    "fleet": "#6a3d9a",
    "threshold": "#b8336a",
}
# Colours of names that are no policies: clients, workloads, variants.
OTHERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#444444", "#d55e00", "#b8a800")
# The same beside policies: colours that no policy has.
BESIDE = ("#7f7f7f", "#a6761d", "#17a2b8", "#1b1b1b", "#9acd32", "#c49c94", "#e377c2")
# A ramp for numbers in their order, and for more names than OTHERS.
RAMP = ("#30123b", "#3f5aa9", "#2a9d8f", "#6fb03f", "#c7a50e", "#e07b12", "#b33a2c")


def policy_of(name: Label) -> str | None:
    """The first policy named in a label: vtc of "client-rr+vtc", rpm of "RPM(5)", rr+lpm of itself."""
    text = str(name).lower()
    found = [
        (match.start(), -len(policy), policy)
        for policy in POLICIES
        if (match := re.search(rf"(?<![a-z0-9-]){re.escape(policy)}(?![a-z0-9])", text))
    ]
    return min(found)[2] if found else None


def colours_of(names: Sequence[Label]) -> dict[Label, str]:
    """A colour per name.

    Policies have their own; two variants of one policy share it and differ by markers.
    """
    if names and all(isinstance(name, int | float) for name in names):
        return dict(zip(sorted(names, key=float), _ramp(len(names)), strict=True))
    unnamed = [name for name in names if policy_of(name) is None]
    free = _ramp(len(unnamed)) if len(unnamed) > len(OTHERS) else list(OTHERS)
    if len(unnamed) < len(names) and len(unnamed) <= len(BESIDE):
        free = list(BESIDE)
    found = {name: free[place % len(free)] for place, name in enumerate(unnamed)}
    return {
        name: POLICIES[policy] if (policy := policy_of(name)) else found[name] for name in names
    }


def _ramp(count: int) -> list[str]:
    """`count` colours along the ramp, mixed where the ramp has fewer."""
    if count == 1:
        return [OTHERS[0]]
    places = [place * (len(RAMP) - 1) / (count - 1) for place in range(count)]
    return [
        _mixed(RAMP[int(place)], RAMP[min(int(place) + 1, len(RAMP) - 1)], place % 1)
        for place in places
    ]


def _mixed(first: str, second: str, share: float) -> str:
    parts = [
        round(int(first[at : at + 2], 16) * (1 - share) + int(second[at : at + 2], 16) * share)
        for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)
