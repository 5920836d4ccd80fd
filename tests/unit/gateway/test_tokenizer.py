"""Tokens instead of bytes in the prefix index, by flag."""

from array import array
from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.tokenizer import Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A vocabulary of words."""
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_conversation_begins_with_the_tokens_of_its_beginning(folder: Path) -> None:
    """Parts are encoded one by one: no token reaches from one into the next."""
    tokenizer = Tokenizer(folder)
    first = tokenizer.encode(["user", "a b"])

    assert tokenizer.encode(["user", "a b", "assistant", "b"]).startswith(first)
    assert list(array("I", first)) == [0xFFFFFFFF, 2, 0xFFFFFFFF, 0, 1]
    assert tokenizer.encode([]) == b""


def test_what_is_no_tokenizer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer") as refused:
        Tokenizer(tmp_path)
    assert "\n" not in str(refused.value)
