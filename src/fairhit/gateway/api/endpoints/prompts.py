"""Prompts in canonical form: role and content of each message, so that a conversation grows at its end.

All endpoints write a conversation the same way: an engine's cache is shared by all of them.
"""

from array import array
from collections.abc import Collection
from typing import Any

import orjson

from fairhit.errors import BadRequest
from fairhit.gateway.api.endpoints.endpoint import Document, Prompt

# Messages of a request, and parts of a message: conversations have hundreds, and each takes time on the
# event loop.
_MAX_PARTS = 4096
_MESSAGE = frozenset(("role", "content"))


def conversation(
    document: Document,
    name: str,
    *,
    parts: list[str],
    texts: frozenset[str] = frozenset(("text",)),
    incidental: Collection[str] = (),
    others: bool = False,
) -> list[str]:
    """Append role and content of each message in the list called `name` to `parts`, and return them.

    `texts` are the types of content parts that are text; `incidental` are fields of a message that do not
    reach the model; `others`: the list may have items without a role, which are appended as JSON. Raises
    BadRequest. O(messages).
    """
    messages = document.get(name)
    if not isinstance(messages, list) or not messages:
        raise BadRequest(f"{name} must be a list of at least one message", param=name)
    check_count(messages, name)
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            where = f"{name}[{number}]"
            if others and isinstance(message, dict) and "role" not in message:
                parts.append(dumped(message, name))
                continue
            raise BadRequest(f"{where} must be an object with a string `role`", param=where)
        content = message.get("content")
        parts.append(role)
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            parts.append(content_text(content, f"{name}[{number}].content", texts))
        elif content is not None:
            where = f"{name}[{number}].content"
            raise BadRequest(f"{where} must be a string or a list of parts", param=where)
        if len(message) > 2:
            rest = {k: v for k, v in message.items() if k not in _MESSAGE and k not in incidental}
            if rest:
                parts.append(dumped(rest, name))
    return parts


def content_text(content: list[Any], where: str, texts: frozenset[str]) -> str:
    """The text of content parts; as JSON if there is an image or a sound among them."""
    check_count(content, where)
    found = []
    for part in content:
        # The type may be any JSON, and not all of it is hashable.
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(kind, str) and kind in texts else None
        if not isinstance(text, str):
            return dumped(content, where.partition("[")[0])
        found.append(text)
    return "".join(found)


def joined_texts(parts: object) -> str | None:
    """The text of all parts of a response's content; None without text. O(parts)."""
    if not isinstance(parts, list):
        return None
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str)) or None


def given_prompt(document: Document, name: str) -> Prompt:
    """A prompt that is a string, a list of strings, tokens, or a list of those. Raises BadRequest."""
    prompt = document.get(name)
    if isinstance(prompt, str):
        return [prompt], None, 1
    if isinstance(prompt, list) and prompt:
        if isinstance(prompt[0], str) and all(isinstance(item, str) for item in prompt):
            check_count(prompt, name)
            return prompt, None, len(prompt)
        batch = prompt if isinstance(prompt[0], list) else [prompt]
        check_count(batch, name)
        try:
            return [], b"".join(array("I", tokens).tobytes() for tokens in batch), len(batch)
        except (TypeError, OverflowError):
            pass
    raise BadRequest(f"{name} must be a string, or a list of strings or tokens", param=name)


def tools_first(document: Document) -> list[str]:
    """The tools, which chat templates put before everything else."""
    return [dumped(document["tools"], "tools")] if document.get("tools") else []


def check_count(items: list[Any], where: str) -> None:
    """Check the number of items. Raises BadRequest."""
    if len(items) > _MAX_PARTS:
        raise BadRequest(f"{where} must have {_MAX_PARTS} entries at most", param=where)


def dumped(value: object, name: str) -> str:
    """Encode content other than text as JSON. Raises BadRequest."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        raise BadRequest("the body is nested too deeply", param=name) from None
