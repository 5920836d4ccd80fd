"""/score, /rerank and their spellings under /v1: texts in, a number for each pair out.

As with embeddings, engines take no identity and report no cached tokens. Names of fields differ by engine,
so every text in the body counts, and the engine reports missing fields.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fairhit.gateway.api.endpoints.embeddings import EMBEDDINGS
from fairhit.gateway.api.endpoints.endpoint import Document, Prompt
from fairhit.gateway.api.endpoints.prompts import check_count

_FIELDS = (
    "query", "queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"
)  # fmt: skip


def _texts(name: str, given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list):
        check_count(given, name)
        for one in given:
            text = one.get("text") if isinstance(one, dict) else one
            if isinstance(text, str):
                yield text


def _read_prompt(document: Document) -> Prompt:
    parts = [text for name in _FIELDS for text in _texts(name, document.get(name))]
    return parts, None, 1


SCORING = replace(EMBEDDINGS, name="scoring", read_prompt=_read_prompt)
