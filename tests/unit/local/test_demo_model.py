"""The demo model is made once, whole, and the same every time."""

import hashlib
import json
from pathlib import Path

import pytest

from fairhit.errors import ConfigError
from fairhit.local import demo_model as model

pytestmark = pytest.mark.vllm  # the tokenizer's trainer comes with the engine


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "first"
    model.make_whole(folder)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_it_is_the_same_bytes_every_time(made: Path, tmp_path: Path):
    """Two machines that compare their demo numbers run the same model."""
    again = tmp_path / "again"
    model.make_whole(again)

    assert contents(again) == contents(made)
    assert [path.name for path in tmp_path.iterdir()] == ["again"]  # nothing half-made stays


def test_a_half_made_one_is_made_again(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A copy that was cut off: config.json, which is written last, is missing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = model.demo_model()
    assert folder.is_relative_to(tmp_path)
    (folder / "config.json").unlink()
    (folder / "model.safetensors").write_bytes(b"half")

    assert contents(model.demo_model()) == contents(made)


def test_the_tokenizer_gives_back_what_it_got(made: Path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(made)
    text = "Fair shares, 公平, 🙂\n"
    chat = [{"role": "user", "content": text}]

    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        == f"<|user|>{text}<|end|><|assistant|>"
    )


def test_it_says_that_its_weights_are_random(made: Path):
    assert "RANDOM WEIGHTS" in (made / "README.md").read_text()
    assert "never trained" in json.loads((made / "config.json").read_text())["note"]


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(ConfigError, match="cannot write the demo model"):
        model.make_whole(file / "below")


def test_other_ingredients_make_another_folder(monkeypatch: pytest.MonkeyPatch):
    """A changed recipe must not find the model of the old recipe in the cache."""
    before = model.recipe()
    monkeypatch.setattr(model, "SEED", model.SEED + 1)

    assert model.recipe() != before
