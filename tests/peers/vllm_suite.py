"""vLLM's own tests, beside FairScheduler: `python -m tests.peers.vllm_suite` (`make peers`).

Each group of files runs once with the stock scheduler and once for each policy with FairScheduler in its
place, in processes of their own. What passes with the stock scheduler and not with ours is a difference;
`accepted.toml` lists those that are meant, with a reason each. Any other fails the run, and so does an
entry of the list that has become untrue. What fails with the stock scheduler, too, says nothing of ours.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairhit.local.provenance import commit
from tests.peers.vllm_models import write_models

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ACCEPTED = HERE / "accepted.toml"
RESULTS = ROOT / "benchmarks" / "results" / "peers" / "vllm.json"

VERSIONS = ("0.32.0", "0.33.0")
INSTALLED = VERSIONS[0]
STOCK = "stock"
POLICIES = ("dlpm", "vtc", "lpm", "fcfs")
# By what matches a file's path below tests/v1. CI has time for the first alone, and for streaming input.
GROUPS = {
    "scheduler": r"core/test_(async_)?scheduler\.py",
    "core": r"core/(?!test_(async_)?scheduler\.py).*",
    "streaming input": r"streaming_input/.*",
    "spec decode": r"spec_decode/.*",
    "KV connectors": r"kv_connector/unit/.*",
    "KV offload": r"simple_kv_offload/.*",
    "encoder cache connectors": r"ec_connector/unit/.*",
}
LIMIT_S = 1200.0

Outcomes = dict[str, str]  # by test


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A difference that is accepted: tests by a pattern with `*`, and where they differ."""

    tests: str
    outcome: str
    reason: str
    versions: tuple[str, ...] = VERSIONS
    policies: tuple[str, ...] = POLICIES

    def covers(self, test: str) -> bool:
        """Return whether an accepted difference is about this test."""
        return re.fullmatch(".*".join(map(re.escape, self.tests.split("*"))), test) is not None


@dataclass(kw_only=True, slots=True)
class Comparison:
    """The outcomes of one group of one version's tests, with the stock scheduler and under one policy."""

    version: str
    policy: str
    stock: Outcomes
    ours: Outcomes
    accepted: set[Entry] = field(default_factory=set)

    def differences(self) -> dict[str, str]:
        """Tests that pass with the stock scheduler and not with ours, and what became of them."""
        return {
            test: self.ours.get(test, "missing")
            for test, outcome in self.stock.items()
            if outcome == "passed" and self.ours.get(test) != "passed"
        }

    def unexpected(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Differences that no entry covers; those that do are remembered as true."""
        here = [
            entry
            for entry in entries
            if self.version in entry.versions and self.policy in entry.policies
        ]
        for test, outcome in self.differences().items():
            covering = [entry for entry in here if entry.covers(test) and entry.outcome == outcome]
            self.accepted.update(covering)
            if not covering:
                yield f"{self.version} {self.policy}: {test}: {outcome}, and passed with stock"

    def counts(self) -> dict[str, int]:
        """Of the tests that pass with the stock scheduler."""
        differing = Counter(self.differences().values())
        passing = sum(outcome == "passed" for outcome in self.stock.values())
        return {"passed": passing - differing.total(), **differing}


def read_accepted(path: Path = ACCEPTED) -> tuple[list[Entry], Mapping[str, str]]:
    """The differences, and the files that are not run, each with its reason."""
    content = tomllib.loads(path.read_text())
    entries = [
        Entry(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in found.items()
            }
        )
        for found in content["difference"]
    ]
    return entries, {found["file"]: found["reason"] for found in content["not_run"]}


def files_of(group: str, version: str, not_run: Mapping[str, str]) -> list[Path]:
    """The group's files in which a scheduler occurs; others cannot tell ours from the stock one."""
    folder = unpacked_tests(version) / "tests" / "v1"
    return [
        path
        for path in sorted(folder.rglob("test_*.py"))
        if re.fullmatch(GROUPS[group], path.relative_to(folder).as_posix())
        and re.search(r"[Ss]cheduler", path.read_text())
        and not any(path.as_posix().endswith(f"/{file}") for file in not_run)
    ]


def unpacked_tests(version: str) -> Path:
    """Return the folder where scripts/install_peers.py puts vLLM's tests."""
    return ROOT / ".venvs" / f"vllm-{version}-tests"


def run(
    version: str, group: str, policy: str, files: Sequence[Path], *, workers: int, folder: Path
) -> Outcomes:
    """Run one version's tests under one policy. Raises RuntimeError if pytest itself fails."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{version}-{group.replace(' ', '-')}-{policy}.jsonl"
    out.unlink(missing_ok=True)
    write_models(folder / "models")
    paths = [unpacked_tests(version), ROOT / "src", HERE / "plugin"]
    if version != INSTALLED:  # unpacked, not installed: it cannot tell that it is to run on a CPU
        paths.insert(0, ROOT / ".venvs" / f"vllm-{version}")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FAIRHIT_")},
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PEER_OUTCOMES": str(out),
        "EXPECT_VLLM": version,
        "VLLM_TARGET_DEVICE": "cpu",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "CI": "",
    }
    if policy != STOCK:
        # Without audits: many of the tests put requests into the scheduler's lists by hand.
        environment["FAIRHIT_SCHEDULER"] = policy
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "peer_plugin"]
    command += ["-c", os.devnull, "--rootdir", str(unpacked_tests(version)), "--tb=short"]
    command += ["-n", str(workers)] if workers > 1 else []
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=folder / "models", env=environment, capture_output=True, text=True, check=False,
        timeout=LIMIT_S,
    )  # fmt: skip
    if done.returncode not in (0, 1) or not out.exists():
        raise RuntimeError(f"{version} {policy}: {(done.stdout + done.stderr)[-3000:]}")
    return read_outcomes(out)


def read_outcomes(path: Path) -> Outcomes:
    """The worst of what was written of each test: its teardown may fail after it passed."""
    found: Outcomes = {}
    for line in path.read_text().splitlines():
        test, outcome, _ = json.loads(line)
        if found.get(test, "passed") in ("passed", "skipped"):
            found[test] = outcome
    return found


def compare(
    groups: Sequence[str],
    versions: Sequence[str],
    policies: Sequence[str],
    *,
    workers: int,
    folder: Path,
) -> tuple[list[str], dict[str, Any]]:
    """Complaints, and the counts by version, group and policy. Says how it goes."""
    entries, not_run = read_accepted()
    complaints: list[str] = []
    table: dict[str, Any] = {}
    true: dict[tuple[str, str], set[Entry]] = {}
    for version in versions:
        for group in groups:
            files = files_of(group, version, not_run)
            stock = run(version, group, STOCK, files, workers=workers, folder=folder)
            complaints += idle(files, stock, version)
            row = table.setdefault(version, {})[group] = {STOCK: dict(Counter(stock.values()))}
            print(f"{version} {group}: stock {row[STOCK]}", flush=True)
            for policy in policies:
                ours = run(version, group, policy, files, workers=workers, folder=folder)
                found = Comparison(version=version, policy=policy, stock=stock, ours=ours)
                complaints += found.unexpected(entries)
                true.setdefault((version, policy), set()).update(found.accepted)
                row[policy] = found.counts()
                print(f"{version} {group}: {policy} {row[policy]}", flush=True)
    if set(groups) == set(GROUPS):
        complaints += stale(entries, true)
    return complaints, table


def idle(files: Sequence[Path], stock: Outcomes, version: str) -> Iterator[str]:
    """Files of which nothing passes here: they show nothing and belong into the list of those not run."""
    working = {test.partition("::")[0] for test, outcome in stock.items() if outcome == "passed"}
    for path in files:
        name = path.relative_to(unpacked_tests(version)).as_posix()
        if name not in working:
            yield f"{version}: nothing of {name} passes with the stock scheduler"


def stale(entries: Iterable[Entry], true: Mapping[tuple[str, str], set[Entry]]) -> Iterator[str]:
    """Entries that claim a difference which is none."""
    for entry in entries:
        for (version, policy), found in true.items():
            if version in entry.versions and policy in entry.policies and entry not in found:
                yield f"{version} {policy}: accepted, but no difference: {entry.tests}"


def keep(table: Mapping[str, Any], path: Path = RESULTS) -> None:
    """Write the counts of each group that was run, with the commit, over those of before."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    for version, groups in table.items():
        for group, row in groups.items():
            before = kept.setdefault(version, {}).get(group, {})
            kept[version][group] = {**before, **row, "commit": commit()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    """Run what was asked for; 1 if anything differs that may not."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--group", choices=GROUPS, action="append", help="all, if not given")
    parser.add_argument("--version", choices=VERSIONS, action="append", help="all, if not given")
    parser.add_argument("--policy", choices=POLICIES, action="append", help="all, if not given")
    parser.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--write", action="store_true", help=f"keep the counts in {RESULTS.name}")
    parser.add_argument("--outcomes", type=Path, help="keep each test's outcome in this folder")
    options = parser.parse_args()
    for version in options.version or VERSIONS:
        if not unpacked_tests(version).is_dir():
            parser.error(
                f"no tests at {unpacked_tests(version)}: scripts/install_peers.py fetches them"
            )
    with contextlib.ExitStack() as stack:
        folder = options.outcomes or stack.enter_context(tempfile.TemporaryDirectory())
        complaints, table = compare(
            options.group or list(GROUPS),
            options.version or list(VERSIONS),
            options.policy or list(POLICIES),
            workers=options.workers,
            folder=Path(folder),
        )
    if options.write:
        keep(table)
    print("\n".join(complaints) or "no difference but the accepted ones")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
