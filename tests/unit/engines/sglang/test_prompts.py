"""Prompts as SGLang's tree divides them, and whose requests they are."""

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.client_names import client_name
from fairhit.engines.sglang.identity import client_of
from fairhit.engines.sglang.radix.prompts import NO_NAMESPACE, Namespace, to_tokens, to_units

# Tokens of a vocabulary, and what stands for the patches of an image.
TOKENS = st.lists(st.integers(0, 300_000) | st.integers(-(1 << 60), 1 << 60), max_size=20)
NAMES = st.none() | st.sampled_from(["a", "b"])


@given(tokens=TOKENS, page_len=st.integers(1, 5), extra_key=NAMES, salt=NAMES)
def test_units_are_whole_pages_and_tell_their_tokens(tokens, page_len, extra_key, salt):
    namespace = Namespace(extra_key, salt)

    units = to_units(array("q", tokens), page_len, namespace)

    whole = len(tokens) // page_len * page_len
    assert len(units) * page_len == whole
    given = namespace if units else NO_NAMESPACE
    assert to_tokens(units) == (array("q", tokens[:whole]), given)


def test_prompts_of_two_namespaces_share_nothing():
    """A LoRA adapter's cache is no other's, though the tokens are the same."""
    tokens = array("q", [1, 2, 3])
    spaces = [NO_NAMESPACE, Namespace("a", None), Namespace("b", None), Namespace(None, "a")]

    firsts = [to_units(tokens, 1, space)[0] for space in spaces]

    assert len(set(firsts)) == len(spaces)


def test_a_waiting_prompt_is_sglang_s_own_array():
    """20,000 tokens are 160 KB, and not 160 more here: a thousand such prompts may wait."""
    tokens = array("q", [70_000, 70_001])

    units = to_units(tokens, 1, NO_NAMESPACE)

    assert units.units() is tokens
    assert to_tokens(units)[0] is tokens


def test_older_versions_keep_lists():
    assert to_units([1, 2, 3], 1, NO_NAMESPACE) == to_units(array("q", [1, 2, 3]), 1, NO_NAMESPACE)


def req(**fields: Any) -> SimpleNamespace:
    known = {"routing_key": None, "lora_id": None, "custom_params": None, **fields}
    sampling = SimpleNamespace(custom_params=known.pop("custom_params"))
    return SimpleNamespace(**known, sampling_params=sampling, extra_key=known["lora_id"])


@pytest.mark.parametrize(
    ("fields", "client"),
    [
        ({}, "anonymous"),
        ({"routing_key": "key", "custom_params": {"fair_client": "params"}}, "key"),
        ({"routing_key": "", "custom_params": {"fair_client": "params"}}, "params"),
        ({"custom_params": {"else": 1}}, "anonymous"),
        ({"custom_params": {"fair_client": ["no", "name"]}}, "anonymous"),
        ({"custom_params": "no object"}, "anonymous"),
        ({"routing_key": "a\nb" * 100}, client_name("a\nb" * 100)),
        ({"lora_id": "7"}, "anonymous"),
    ],
)
def test_a_client_is_the_routing_key_else_what_the_body_says(fields, client):
    assert client_of(req(**fields)) == client


def test_an_adapter_is_a_client_only_if_it_is_to_be():
    def name(of: SimpleNamespace) -> object:
        return {"7": "summaries"}.get(of.lora_id)

    assert client_of(req(lora_id="7"), name) == "summaries"
    assert client_of(req(lora_id="8"), name) == "8"  # its name is not known
    assert client_of(req(lora_id="7", routing_key="key"), name) == "key"
    assert client_of(req(), name) == "anonymous"
