"""A supervised process answers before it counts, comes back when it dies, and never outlives us."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fairhit.errors import EngineFailed
from fairhit.local import supervision
from fairhit.local.supervision import Child

# An engine as bad as they come: it will not hear SIGTERM, and neither will what it started.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
sleeper += "pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", sleeper, sys.argv[1]])
time.sleep(600)
"""


# One that has something to finish: it hears SIGTERM and is done half a second later.
UNHURRIED = """
import pathlib, signal, sys, time
def finish(*_): time.sleep(0.5); pathlib.Path(sys.argv[1] + "-finished").touch(); sys.exit()
signal.signal(signal.SIGTERM, finish)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def child(
    tmp_path: Path,
    code: str,
    *,
    news: list[tuple[str, str]] | None = None,
    grace_s: float | None = None,
) -> Child:
    mark = tmp_path / "answers"

    async def probe() -> bool:
        return mark.exists()

    return Child(
        name="engine",
        command=[sys.executable, "-c", code, str(mark)],
        environment=os.environ,
        log=tmp_path / "log",
        probe=probe,
        notify=lambda name, text: news.append((name, text)) if news is not None else None,
        before_start=lambda: mark.unlink(missing_ok=True),
        grace_s=grace_s,
    )


def session(pid: int) -> list[int]:
    """Every living process of that session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def eventually(condition: Callable[[], bool], *, within_s: float = 30) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "BACKOFF_MAX_S", 0.05)
    monkeypatch.setattr(supervision, "PROBE_INTERVAL_S", 0.05)


def test_stopping_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C on an engine that hears nothing: the guard kills it and what it started."""
    monkeypatch.setenv("FAIRHIT_GUARD_GRACE_S", "0.2")

    async def story() -> int:
        engine = child(tmp_path, STUBBORN)
        task = asyncio.create_task(engine.supervise())
        await asyncio.wait_for(engine.ready.wait(), 30)
        assert engine.pid is not None
        assert len(session(engine.pid)) == 3
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return engine.pid

    assert session(asyncio.run(story())) == []


def test_patience_can_end(tmp_path: Path):
    """A stop at once does not wait for the grace period, and leaves no process behind."""

    async def story() -> tuple[int, float]:
        engine = child(tmp_path, STUBBORN, grace_s=60)
        task = asyncio.create_task(engine.supervise())
        await asyncio.wait_for(engine.ready.wait(), 30)
        assert engine.pid is not None
        task.cancel()
        await asyncio.wait([task], timeout=0.5)
        assert not task.done()
        engine.stop_at_once()
        began_s = time.monotonic()
        await asyncio.gather(task, return_exceptions=True)
        return engine.pid, time.monotonic() - began_s

    pid, took_s = asyncio.run(story())

    assert session(pid) == []
    assert took_s < 20


@pytest.mark.parametrize(("grace_s", "finished"), [(None, False), (30.0, True)])
def test_each_process_has_its_own_time_to_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace_s: float | None, finished: bool
):
    """The gateway's streams may take longer to end than an engine."""
    monkeypatch.setenv("FAIRHIT_GUARD_GRACE_S", "0.1")

    async def story() -> None:
        engine = child(tmp_path, UNHURRIED, grace_s=grace_s)
        task = asyncio.create_task(engine.supervise())
        await asyncio.wait_for(engine.ready.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())

    assert (tmp_path / "answers-finished").exists() == finished


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path):
    (tmp_path / "log").mkdir()
    engine = child(tmp_path, "pass")

    with pytest.raises(EngineFailed, match=r"engine cannot be started: .*log: Is a directory"):
        asyncio.run(engine.supervise())


def test_not_even_a_zombie_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a container, process 1 may reap nothing."""
    monkeypatch.setenv("FAIRHIT_GUARD_GRACE_S", "0.2")

    async def story() -> list[psutil.Process]:
        engine = child(tmp_path, STUBBORN)
        task = asyncio.create_task(engine.supervise())
        await asyncio.wait_for(engine.ready.wait(), 30)
        family = psutil.Process(engine.pid).children(recursive=True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [process for process in family if process.is_running()]

    for _ in range(3):
        assert asyncio.run(story()) == []


def test_a_killed_engine_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """kill -9 on the engine: what it had started goes with it, and a new one is started."""
    monkeypatch.setenv("FAIRHIT_GUARD_GRACE_S", "0.2")
    news: list[tuple[str, str]] = []

    async def story() -> None:
        engine = child(tmp_path, STUBBORN, news=news)
        task = asyncio.create_task(engine.supervise())
        await asyncio.wait_for(engine.ready.wait(), 30)
        first = engine.pid
        assert first is not None
        (api,) = psutil.Process(first).children()
        api.kill()
        while engine.ready.is_set():
            await asyncio.sleep(0.01)
        await asyncio.wait_for(engine.ready.wait(), 30)
        assert session(first) == []
        assert engine.pid != first
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    assert [text.split(" (")[0] for _, text in news] == [
        "starting", "ready", "ended", "starting", "ready",
    ]  # fmt: skip
    assert "status 137" in news[2][1]


def test_an_engine_that_never_answered_is_not_tried_again(tmp_path: Path):
    """A wrong flag or model stays wrong: say why, once, with the place of the log."""
    engine = child(tmp_path, "raise ValueError('no such model')")

    with pytest.raises(
        EngineFailed, match=r"engine cannot run: ValueError: no such model \(.*log\)"
    ):
        asyncio.run(engine.supervise())


def test_an_engine_that_keeps_dying_is_given_up(tmp_path: Path):
    dies = "import sys,time,pathlib; p=pathlib.Path(sys.argv[1]); p.touch(); time.sleep(.3); sys.exit(3)"
    engine = child(tmp_path, dies)
    engine_probe = engine._probe
    answers = iter([True])  # it is ready once, and never again

    async def once() -> bool:
        return await engine_probe() and next(answers, False)

    engine._probe = once
    with pytest.raises(EngineFailed, match="cannot run"):
        asyncio.run(asyncio.wait_for(engine.supervise(), 60))


PARENT = """
import asyncio, os, pathlib, sys
from fairhit.local.supervision import Child
mark = pathlib.Path(sys.argv[1])
async def probe(): return mark.exists()
async def main():
    engine = Child(name="e", command=[sys.executable, "-c", sys.argv[2], str(mark)], environment=os.environ,
                   log=mark.with_name("log"), probe=probe, notify=lambda *a: None)
    asyncio.create_task(engine.supervise())
    await engine.ready.wait()
    print(engine.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path, number: signal.Signals):
    """kill -9 on the supervisor: it can do nothing any more, and still nothing stays."""
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path / "answers"), STUBBORN]
    environment = {**os.environ, "FAIRHIT_GUARD_GRACE_S": "0.2"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        assert len(session(guard)) == 3
        parent.send_signal(number)
        parent.wait(10)

    assert eventually(lambda: session(guard) == [])
