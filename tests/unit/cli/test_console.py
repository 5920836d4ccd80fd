"""A demo that is interrupted, or cannot write its numbers, says so and shows what it has."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from fairhit import cli
from fairhit.cli import console
from fairhit.errors import EngineFailed
from fairhit.local.demo import two_tenants as flood
from fairhit.local.demo.closed_loop import Served

SECOND = 1_000_000


def result_of(scheduler: str, router: str) -> flood.PolicyResult:
    """Any numbers will do."""
    records = [
        Served(
            tenant=tenant, engine="engine-0", sent_us=0, first_us=5 * SECOND, done_us=6 * SECOND,
            prompt_len=400, cached_len=100, output_len=8, pieces_us=(5 * SECOND, 6 * SECOND),
        )
        for tenant in flood.CALLERS
    ]  # fmt: skip
    return flood.summarize(scheduler, router, records, (0, 20 * SECOND), failures=0)


def second_policy(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> list[str]:
    """In place of real runs: the first policy is measured, the second is interrupted or fails."""
    run: list[str] = []

    async def run_policy(scheduler: str, router: str, **_: object) -> flood.PolicyResult:
        run.append(scheduler)
        if len(run) == 1:
            return result_of(scheduler, router)
        if failure is not None:
            raise failure
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        raise AssertionError("it was not interrupted")

    monkeypatch.setattr(flood, "run_policy", run_policy)
    return run


def test_an_interrupted_demo_shows_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    run = second_policy(monkeypatch, None)
    out = tmp_path / "numbers.json"

    assert cli.main(["demo", "--seconds", "20", "--out", str(out)]) == 130

    said = capsys.readouterr().out
    assert run == [scheduler for scheduler, _ in flood.POLICIES[:2]]
    assert "stopping" in said
    assert "fcfs + round-robin" in said
    written = json.loads(out.read_text())
    assert [row["scheduler"] for row in written["rows"]] == ["fcfs"]
    assert written["complete"] is False


def test_a_demo_that_fails_shows_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    second_policy(monkeypatch, EngineFailed("engine 0 cannot run"))

    assert cli.main(["demo"]) == 1

    said = capsys.readouterr()
    assert "fcfs + round-robin" in said.out
    assert said.err == "fairhit: error: engine 0 cannot run\n"


def test_settings_stand_beside_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    second_policy(monkeypatch, EngineFailed("over"))
    out = tmp_path / "numbers.json"
    cli.main(["demo", "--seed", "7", "--out", str(out)])

    said = capsys.readouterr().out
    written = json.loads(out.read_text())
    assert "--quantum 512 (4,096)" in said
    assert "--worker-quantum 1,024 (16,384)" in said
    assert "--stream-interval 8 (1)" in said
    assert (written["seed"], written["seconds"]) == (7, 20)
    assert [setting["flag"] for setting in written["settings"]] == [
        setting.flag for setting in flood.SETTINGS
    ]


def test_a_place_for_the_numbers_is_looked_for_and_left_alone(tmp_path: Path):
    """Twenty minutes of measuring must not end in `Permission denied`; nor an old file be lost."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("numbers of last week")

    console.require_writable(old)
    console.require_writable(new)

    assert old.read_text() == "numbers of last week"
    assert not new.exists()


def test_numbers_that_cannot_be_written_are_one_line_after_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    second_policy(monkeypatch, EngineFailed("over"))

    assert cli.main(["demo", "--out", "/dev/full"]) == 2

    said = capsys.readouterr()
    assert "fcfs + round-robin" in said.out
    assert said.err == "fairhit: error: --out /dev/full: No space left on device\n"
