"""/v1/messages of Anthropic's API: system and messages in, blocks out; streams have named events.

The first event of a stream has the prompt's usage, the last but one the output's.
"""

import re
from typing import Any

from fairhit.errors import BadRequest
from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt, StreamFormat
from fairhit.gateway.api.endpoints.errors import anthropic_error, anthropic_event
from fairhit.gateway.api.endpoints.prompts import check_count, dumped, joined_texts, tools_first
from fairhit.gateway.api.endpoints.usage import message_usage

_STREAMED = StreamFormat(
    find=re.compile(rb'"(text|thinking|partial_json)": *"([^"\\]*+(?:\\.[^"\\]*+)*+)"').findall,
    answer_kinds=frozenset((b"text",)),
    reasoning_kinds=frozenset((b"thinking",)),
)


def _read_prompt(document: Document) -> Prompt:
    """The canonical form of the same conversation by chat: tools, system, messages."""
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list of at least one message", param="messages")
    check_count(messages, "messages")
    parts = tools_first(document)
    if document.get("system"):
        _add(parts, "system", document["system"], "system")
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(f"{where} must be an object with a string `role`", param=where)
        _add(parts, message["role"], message.get("content"), f"{where}.content")
    return parts, None, 1


def _add(parts: list[str], role: str, content: Any, where: str) -> None:
    """Append role and text of a message, then its other blocks: text is at the position it was streamed at.

    `cache_control` differs between requests of a conversation and does not reach the model.
    """
    if isinstance(content, str):
        parts += (role, content)
        return
    if not isinstance(content, list):
        raise BadRequest(f"{where} must be a string or a list of blocks", param=where)
    check_count(content, where)
    texts, others = [], []
    for block in content:
        if not isinstance(block, dict):
            raise BadRequest(f"{where} must be a string or a list of blocks", param=where)
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        else:
            others.append({k: v for k, v in block.items() if k != "cache_control"})
    parts += (role, "".join(texts))
    if others:
        parts.append(dumped(others, "messages"))


def _read_text(document: Document) -> str | None:
    return joined_texts(document.get("content"))


MESSAGES = Endpoint(
    name="messages",
    read_prompt=_read_prompt,
    named_by_header=True,
    limits=("max_tokens",),
    stream_format=_STREAMED,
    read_usage=message_usage,
    read_text=_read_text,
    error_body=anthropic_error,
    error_event=anthropic_event,
)
