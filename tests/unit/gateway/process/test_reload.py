"""Settings files that change: whole, half-written, emptied, replaced, wrong."""

import argparse
import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.e2e.gateway.world import eventually

from fairhit.errors import ConfigError
from fairhit.gateway.process.reload import Reloader, Settled, Stamp, stamp_of
from fairhit.gateway.settings import GatewaySettings, Sources, add_arguments

A, B, C = ((1, 1, 1),), ((2, 1, 1),), ((2, 1, 2),)


def test_a_change_counts_once_two_checks_agree_on_it() -> None:
    """A check may find a file half written."""
    settled = Settled(A)

    checks = [settled.changed(stamp) for stamp in (A, B, C, C, C, A, B, B)]
    assert checks == [False, False, False, True, False, False, False, True]


def test_what_was_read_for_another_reason_is_not_read_again() -> None:
    settled = Settled(A)
    settled.changed(B)
    settled.was_read(B)

    assert not settled.changed(B)


def test_a_file_moved_into_place_has_changed_although_time_and_size_are_the_same(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "a", tmp_path / "b"
    for path in (old, new):
        path.write_text("x")
        os.utime(path, ns=(1, 1))
    before = stamp_of([old])
    new.replace(old)

    assert stamp_of([old]) != before
    assert stamp_of([tmp_path / "none"]) == (None,)


class World:
    """A reloader over real files; `applied` is what a gateway would have got."""

    def __init__(self, *argv: str, more: Sequence[Path] = ()) -> None:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        sources = Sources(parser.parse_args(argv))
        self.applied: list[GatewaySettings] = []
        self.reloader = Reloader(
            read=sources.read,
            files=sources.files(),
            more_files=lambda: more,
            apply=self.applied.append,
        )


def test_a_reload_reads_files_again_and_flags_still_win(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("min-match: 1\nworker-quantum: 1\n")
    world = World("--config", str(config), "--min-match", "9")
    config.write_text("min-match: 2\nworker-quantum: 2\n")
    world.reloader.reload()

    assert [(made.min_match, made.worker_quantum) for made in world.applied] == [(9, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker-urls: [http://a:1", ", line 1: not valid YAML"),
        ("wroker-urls: [http://a:1]", "wroker-urls: no such setting; did you mean worker-urls?"),
        ("", ": is empty"),
        ("\n  \n", ": is empty"),
        (None, ": cannot be read"),
    ],
)
def test_what_cannot_be_read_changes_nothing_and_is_said_once(
    text: str | None, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("port: 1\n")
    world = World("--config", str(config))
    if text is None:
        config.unlink()
    else:
        config.write_text(text)
    with caplog.at_level(logging.WARNING, "fairhit"):
        world.reloader.reload()

    assert world.applied == []
    assert len(caplog.messages) == 1
    assert message in caplog.messages[0]
    assert "\n" not in caplog.messages[0]


def test_a_wrong_setting_found_while_applying_is_said_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()

    def refuse(settings: GatewaySettings) -> None:
        raise ConfigError("keys: cannot be read")

    world.reloader._apply = refuse
    world.reloader.reload()

    assert caplog.messages == ["settings are kept as they are: keys: cannot be read"]


def test_files_are_watched(tmp_path: Path) -> None:
    config, keys = tmp_path / "c.yaml", tmp_path / "keys"
    config.write_text("min-match: 1\n")
    keys.write_text("a:k\n")
    world = World("--config", str(config), more=[keys])
    checks, stamp = 0, world.reloader._stamp

    def counted() -> Stamp:
        nonlocal checks
        checks += 1
        return stamp()

    world.reloader._stamp = counted

    async def story() -> None:
        watching = asyncio.ensure_future(world.reloader.watch(0.001))
        config.write_text("min-match: 22\n")
        await eventually(lambda: len(world.applied) == 1)
        keys.write_text("a:another\n")
        await eventually(lambda: len(world.applied) == 2)
        enough = checks + 5
        await eventually(lambda: checks >= enough)
        watching.cancel()

    asyncio.run(story())
    assert [made.min_match for made in world.applied] == [22, 22]
