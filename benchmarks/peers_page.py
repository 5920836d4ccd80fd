"""The table of vLLM's own tests on its page, from the committed run and the list of accepted differences."""

import json
import tomllib
from collections.abc import Mapping

from benchmarks.committed import RESULTS, ROOT

ACCEPTED = ROOT / "tests" / "peers" / "accepted.toml"


def vllm() -> str:
    """A row for each version and group: what passes with the stock scheduler, and of that with ours."""
    run = json.loads((RESULTS / "peers" / "vllm.json").read_text())
    policies = sorted(
        {policy for groups in run.values() for row in groups.values() for policy in row}
    )
    policies = [policy for policy in ("dlpm", "vtc", "lpm", "fcfs") if policy in policies]
    lines = [
        f"| vLLM | group | stock | {' | '.join(policies)} | commit |",
        "|---|---|---|" + "---|" * (len(policies) + 1),
    ]
    for version, groups in sorted(run.items()):
        for group, row in groups.items():
            cells = [counts(row["stock"])] + [counts(row.get(policy)) for policy in policies]
            lines.append(f"| {version} | {group} | {' | '.join(cells)} | `{row['commit']}` |")
    return "\n".join(lines)


def counts(found: Mapping[str, int] | None) -> str:
    """`882, 3 failed, 24 refused`: those that pass, then the others."""
    if found is None:
        return "not run"
    others = [f"{found[outcome]} {outcome}" for outcome in sorted(found) if outcome != "passed"]
    return ", ".join([str(found.get("passed", 0)), *others])


def accepted() -> str:
    """The differences that are meant, and the files that are not run, each with its reason."""
    content = tomllib.loads(ACCEPTED.read_text())
    lines = ["| tests | become | why |", "|---|---|---|"]
    for entry in content["difference"]:
        tests = entry["tests"].removeprefix("tests/v1/")
        where = ", ".join([*entry.get("versions", ()), *entry.get("policies", ())])
        become = f"{entry['outcome']} ({where})" if where else entry["outcome"]
        lines.append(f"| `{tests}` | {become} | {entry['reason']} |")
    lines += [
        f"| `{entry['file']}` | not run | {entry['reason']} |" for entry in content["not_run"]
    ]
    return "\n".join(lines)
