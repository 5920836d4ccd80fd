"""Outcomes that were there before: found only where nothing has changed, and never trusted blindly."""

import importlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
from tests.lab.studies.synthetic import METRICS, drawn

from fairhit.errors import ConfigError
from fairhit_lab.metrics.series import SeriesPoint
from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.runner import record
from fairhit_lab.runner.cache import Cache, default_folder
from fairhit_lab.runner.record import Record, config_of, key_of, packed, unpacked
from fairhit_lab.sim.config import WorkerChange
from fairhit_lab.studies.shared.study import Generated, Measured, Outcome, Simulated
from fairhit_lab.studies.vtc.tables import CHARGED_LATE


def a_record(speed=1.5):
    return Record(
        Outcome(
            summary={"speed": speed, "none": None, "clients": {"a": {"n": 3}}},
            series=[
                SeriesPoint(0.5, "a", METRICS[0], 0.1),
                SeriesPoint(1.0, "a", METRICS[0], None),
            ],
            requests=[Row("a", 0.1, 0.2, 0.30000000000000004, 5, 7)],
        ),
        cpu_s=0.25,
        wall_s=0.5,
    )


def opened(folder, said=None, **limits):
    return Cache(folder, say=(said if said is not None else []).append, **limits)


def test_a_record_comes_back_as_it_went():
    assert unpacked(packed(a_record())) == a_record()


def test_what_is_kept_is_found_by_the_next_run(tmp_path):
    first = opened(tmp_path)
    first.put("k1", packed(a_record()), config="c1", cpu_s=0.25)
    first.close()

    second = opened(tmp_path)

    assert second.get("k1") == a_record()
    assert second.get("k2") is None
    assert (second.seconds("c1"), second.seconds("c2")) == (0.25, None)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    "damage", [b"", b"nonsense", packed(a_record())[:-9], packed(a_record())[9:]]
)
def test_a_damaged_file_is_a_miss_and_said_once(tmp_path, damage):
    """A disk that was full, a machine that lost power: the cases run again, and nothing breaks."""
    said: list[str] = []
    cache = opened(tmp_path, said)
    for key in ("k1", "k2"):
        (tmp_path / f"{key}.json.zst").write_bytes(damage)

    assert (cache.get("k1"), cache.get("k2")) == (None, None)
    assert len(said) == 1 and said[0].startswith(f"k1.json.zst in {tmp_path} is damaged")

    cache.put("k1", packed(a_record()), config="c", cpu_s=1)
    assert cache.get("k1") == a_record()


def test_a_record_of_another_shape_is_a_miss(tmp_path):
    """A later version of fairhit may have written it."""
    import zstandard

    said: list[str] = []
    (tmp_path / "k.json.zst").write_bytes(zstandard.compress(b'{"outcome": 1}'))

    assert opened(tmp_path, said).get("k") is None
    assert "KeyError" in said[0]


def test_the_cache_keeps_to_its_size_and_drops_what_was_used_longest_ago(tmp_path):
    content = packed(a_record())
    cache = opened(tmp_path, max_bytes=2 * len(content))
    for second, key in enumerate(("old", "middle", "new")):
        cache.put(key, content, config=key, cpu_s=1)
        os.utime(tmp_path / f"{key}.json.zst", (second, second))
    assert cache.get("old")  # which is thereby the newest

    cache.close()

    assert sorted(path.name for path in tmp_path.glob("*.zst")) == ["new.json.zst", "old.json.zst"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(ConfigError, match=r"^--cache: .*file/cache: Not a directory \(--no-cache"):
        opened(tmp_path / "file" / "cache")


def test_a_disk_that_fills_up_costs_the_cache_and_not_the_run(tmp_path, monkeypatch):
    said: list[str] = []
    cache = opened(tmp_path, said)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for key in ("k1", "k2"):
        cache.put(key, packed(a_record()), config="c", cpu_s=1)
    cache.close()

    assert said == ["the cache cannot be written: No space left on device"]
    assert not list(tmp_path.glob("*.part"))


def test_the_folder_is_the_systems_for_caches(tmp_path):
    assert default_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "fairhit/experiments"
    assert default_folder({}).parts[-3:] == (".cache", "fairhit", "experiments")


def a_case(**changes):
    settings = {"scheduler": "dlpm", "quantum": 4096, **changes}
    return Simulated(
        labels={"policy": "dlpm"}, source=Generated(workload="tot-s1"), settings=settings
    )


def test_a_key_changes_with_all_that_an_outcome_depends_on(tmp_path, monkeypatch):
    case = a_case()
    key = key_of(case, 0, None)

    assert key == key_of(a_case(), 0, None)
    assert key_of(case, 1, None) != key
    assert key_of(a_case(quantum=4097), 0, None) != key
    assert key_of(a_case(changes=(WorkerChange(time_us=5, worker=0, up=False),)), 0, None) != key

    monkeypatch.setattr(record, "code_digest", lambda: "another version")
    assert key_of(case, 0, None) != key
    assert config_of(case) == config_of(a_case())  # which tells settings apart, not versions


def test_a_key_does_not_change_with_a_label():
    first, second = a_case(), a_case()
    renamed = Simulated(labels={"system": "ours"}, source=second.source, settings=second.settings)

    assert key_of(first, 0, None) == key_of(renamed, 0, None)


def test_a_key_changes_with_the_data(tmp_path):
    (case,) = drawn(1, needs=("a.csv",))
    for folder, content in (("one", "1"), ("same", "1"), ("other", "2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text(content, encoding="utf-8")

    keys = [key_of(case, 0, tmp_path / folder) for folder in ("one", "same", "other")]

    assert keys[0] == keys[1] != keys[2]


def test_what_is_timed_counts_for_its_processor_and_its_python_only(monkeypatch):
    case = Measured(labels={"n": 1}, function="fairhit_lab.calibration.simplex:least")
    key, simulated = key_of(case, 0, None), key_of(a_case(), 0, None)

    with monkeypatch.context() as other:
        other.setattr(record.provenance, "processor", lambda: "another")
        assert key_of(case, 0, None) != key
        assert key_of(a_case(), 0, None) == simulated
    monkeypatch.setattr(record.platform, "python_version", lambda: "3.99.0")

    assert key_of(case, 0, None) != key
    assert key_of(a_case(), 0, None) == simulated


COSTS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Linear:
    per_token: int = 1

    def decode(self, tokens):
        return self.per_token * tokens

@dataclass(frozen=True)
class Free:
    per_token: int = 1
"""


def imported_anew(monkeypatch, folder, text):
    """The module of costs with this text."""
    (folder / "costs_for_keys.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "costs_for_keys", raising=False)
    importlib.invalidate_caches()
    record.source_digest.cache_clear()
    return importlib.import_module("costs_for_keys")


@pytest.mark.parametrize("wrapped", [lambda cost: cost, lambda cost: {"deep": [{"in": cost}]}])
def test_a_key_changes_with_the_code_of_an_object_in_the_settings(tmp_path, monkeypatch, wrapped):
    """Two costs may have the same fields; and what a cost does is none of them."""
    costs = imported_anew(monkeypatch, tmp_path, COSTS)
    key = key_of(a_case(cost=wrapped(costs.Linear())), 0, None)

    assert key_of(a_case(cost=wrapped(costs.Linear())), 0, None) == key
    assert key_of(a_case(cost=wrapped(costs.Free())), 0, None) != key

    costs = imported_anew(monkeypatch, tmp_path, COSTS.replace("* tokens", "* tokens * 7"))
    assert key_of(a_case(cost=wrapped(costs.Linear())), 0, None) != key
    monkeypatch.delitem(sys.modules, "costs_for_keys")
    record.source_digest.cache_clear()


def test_a_case_whose_description_hides_the_class_has_it_in_its_key():
    """As those of the VTC paper, which describe themselves by `asdict`."""
    free = replace(CHARGED_LATE, settings={"cost": Plain()})
    other = replace(CHARGED_LATE, settings={"cost": Other()})

    assert free.described() == other.described()
    assert key_of(free, 0, None) != key_of(other, 0, None)


@dataclass(frozen=True)
class Plain:
    worth: int = 1


@dataclass(frozen=True)
class Other:
    worth: int = 1


# Imported by what runs a case, and decides nothing in it.
WITHOUT_EFFECT = ("fairhit.built", "fairhit.errors", "fairhit.installing")


def test_what_the_code_imports_is_code_too():
    """The simulated gateway has the gateway's own queue: a change of that one changes outcomes."""
    counted = [part.removesuffix(".py").replace("/", ".") for part in record.PARTS]
    imports = f"""
import importlib, pkgutil, sys
for name in {counted!r}:
    path = getattr(importlib.import_module(name), "__path__", ())
    for each in pkgutil.walk_packages(path, name + "."):
        importlib.import_module(each.name)
print(*(name for name in sys.modules if name.startswith(("fairhit.", "fairhit_lab."))))
"""
    done = subprocess.run(
        [sys.executable, "-c", imports], capture_output=True, text=True, check=True
    )

    def belongs(name, packages):
        return any(name == each or name.startswith(f"{each}.") for each in packages)

    loaded = done.stdout.split()
    assert "fairhit.dispatch.queue" in loaded
    assert [each for each in loaded if not belongs(each, (*counted, *WITHOUT_EFFECT))] == []


def test_code_is_all_that_runs_a_case(monkeypatch, tmp_path):
    """A changed scheduler counts, and so does a changed helper of a case of one's own; a figure does not."""
    before = (
        record.code_digest.__wrapped__(),
        record.source_digest.__wrapped__("fairhit_lab.studies.shared.study"),
    )
    copy = tmp_path / "fairhit"
    for part in (*record.PARTS, "fairhit_lab/studies", "fairhit_lab/report"):
        whole = record.SOURCES / part
        for path in [whole] if whole.is_file() else whole.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                target = copy / path.relative_to(record.SOURCES)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    monkeypatch.setattr(record, "SOURCES", copy)

    def digests():
        return record.code_digest.__wrapped__(), record.source_digest.__wrapped__(
            "fairhit_lab.studies.shared.study"
        )

    def change(name):
        with (copy / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")

    assert digests() == before
    for name in ("fairhit_lab/report/figures/plot.py", "fairhit_lab/studies/shared/results.py"):
        change(name)
    assert digests() == before
    change("fairhit_lab/studies/shared/study.py")
    assert digests()[0] == before[0] and digests()[1] != before[1]
    change("fairhit/policies/dlpm.py")
    assert digests()[0] != before[0]
