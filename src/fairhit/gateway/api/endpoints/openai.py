"""Endpoints with errors in OpenAI's shape that are a few lines each, and Anthropic's count of tokens.

Embeddings and scores: vLLM accepts no client identity with these requests, so only the gateway's queue is
fair for them; and engines report no cached tokens, so prompts are charged in full.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fairhit.dispatch import Usage
from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt, StreamFormat
from fairhit.gateway.api.endpoints.errors import (
    anthropic_error,
    anthropic_event,
    openai_error,
    openai_event,
)
from fairhit.gateway.api.endpoints.prompts import (
    check_count,
    conversation,
    given_prompt,
    tools_first,
)
from fairhit.gateway.api.endpoints.usage import completion_usage, pooling_usage, scanned_usage

# OpenAI's default for /v1/completions.
_COMPLETION_LIMIT = 16
# Names of these fields differ by engine: every text in the body counts, and the engine reports missing ones.
_SCORING_FIELDS = (
    "query", "queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"
)  # fmt: skip
# Fields of a chat delta or a completion: text, reasoning, arguments of a tool.
_STREAMED = StreamFormat(
    find=re.compile(
        rb'"(content|text|reasoning_content|reasoning|arguments)": *"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
    ).findall,
    answer_kinds=frozenset((b"content", b"text")),
    reasoning_kinds=frozenset((b"reasoning_content", b"reasoning")),
)


def _chat_prompt(document: Document) -> Prompt:
    """Role and content of each message in order, after the tools, which chat templates put first."""
    return conversation(document, "messages", parts=tools_first(document)), None, 1


def _completion_prompt(document: Document) -> Prompt:
    if document.get("prompt") is None and document.get("prompt_embeds") is not None:
        return [], None, 1
    return given_prompt(document, "prompt")


def _embedding_prompt(document: Document) -> Prompt:
    if document.get("input") is None and document.get("messages") is not None:
        return conversation(document, "messages", parts=[]), None, 1  # vLLM accepts these, too
    return given_prompt(document, "input")


def _scoring_prompt(document: Document) -> Prompt:
    parts = [text for name in _SCORING_FIELDS for text in _texts(name, document.get(name))]
    return parts, None, 1


def _texts(name: str, given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list):
        check_count(given, name)
        for one in given:
            text = one.get("text") if isinstance(one, dict) else one
            if isinstance(text, str):
                yield text


def _no_prompt(document: Document) -> Prompt:  # noqa: ARG001 - the content has no effect
    return [], None, 1


def _no_usage(document: Document) -> Usage | None:  # noqa: ARG001 - there is none
    return None


def _only_choice(document: Document) -> Document:
    """The choice of a response with exactly one; else an empty one."""
    choices = document.get("choices")
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        return choices[0]
    return {}


def _chat_text(document: Document) -> str | None:
    message = _only_choice(document).get("message")
    text = message.get("content") if isinstance(message, dict) else None
    return text if isinstance(text, str) else None


def _completion_text(document: Document) -> str | None:
    text = _only_choice(document).get("text")
    return text if isinstance(text, str) else None


# Messages in, choices out; streams have a delta in each event, usage in the last.
CHAT = Endpoint(
    name="chat",
    read_prompt=_chat_prompt,
    limits=("max_completion_tokens", "max_tokens"),
    usage_option=True,
    stream_format=_STREAMED,
    read_usage=completion_usage,
    read_text=_chat_text,
    error_body=openai_error,
    error_event=openai_event,
)
# A prompt, a batch of them, or their tokens in; text out.
COMPLETIONS = replace(
    CHAT,
    name="completions",
    read_prompt=_completion_prompt,
    default_limit=_COMPLETION_LIMIT,
    read_text=_completion_text,
    is_conversation=False,
)
# Texts or their tokens in, vectors out.
EMBEDDINGS = Endpoint(
    name="embeddings",
    read_prompt=_embedding_prompt,
    default_limit=1,
    identity=False,
    cached=False,
    read_usage=pooling_usage,
    scan_usage=scanned_usage,
    error_body=openai_error,
    error_event=openai_event,
)
# Texts in, a number for each pair out.
SCORING = replace(EMBEDDINGS, name="scoring", read_prompt=_scoring_prompt)
# No model runs, so nothing is charged; requests count towards the client's limit in flight like any others.
TOKENIZE = replace(
    EMBEDDINGS,
    name="tokenize",
    read_prompt=_no_prompt,
    charged=False,
    read_usage=_no_usage,
    scan_usage=None,
)
COUNT_TOKENS = replace(
    TOKENIZE, name="count-tokens", error_body=anthropic_error, error_event=anthropic_event
)
