"""Usage in responses. Only complete and plausible reports count."""

import re
from typing import Any

import orjson

from fairhit.dispatch import Usage
from fairhit.gateway.api.endpoints.endpoint import Document

# An object with at most one level of objects in it.
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')


def completion_usage(document: Document) -> Usage | None:
    """Usage of chat, completions and embeddings: each report is complete."""
    return counted(document.get("usage"), "prompt_tokens", "completion_tokens")


def pooling_usage(document: Document) -> Usage | None:
    """Usage of embeddings and scores, which never have cached tokens, whatever the engine's flags."""
    used = completion_usage(document)
    return used._replace(by_flag=False) if used is not None else None


def response_usage(document: Document) -> Usage | None:
    """Usage of /v1/responses, in the response or in its last event. vLLM reports cached tokens here
    whatever its flags.
    """
    response = document.get("response")
    usage = (response if isinstance(response, dict) else document).get("usage")
    used = counted(usage, "input_tokens", "output_tokens")
    return used._replace(by_flag=False) if used is not None else None


def message_usage(document: Document) -> Usage | None:
    """Usage of /v1/messages, in the response, its first event, or its last, which may report the output
    alone. `input_tokens` are those that were neither read from a cache nor written to one.
    """
    message = document.get("message")
    usage = (message if isinstance(message, dict) else document).get("usage")
    if not isinstance(usage, dict):
        return None
    output_len = count(usage.get("output_tokens"))
    computed = count(usage.get("input_tokens", 0))
    cached_len = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    if output_len is None or computed is None:
        return None
    prompt_len = computed + (cached_len or 0) + (written or 0)
    return Usage(prompt_len=prompt_len, output_len=output_len, cached_len=cached_len)


def scanned_usage(body: bytes) -> Usage | None:
    """Usage at the end of a response that is mostly numbers: parsing ten megabytes of vectors would block
    the event loop for a tenth of a second. O(bytes after the last usage).
    """
    usage = last_usage(body)
    return pooling_usage({"usage": usage}) if usage is not None else None


def last_usage(data: bytes) -> object:
    """The last object called `usage` in JSON that may be incomplete. O(bytes after it).

    Inside a JSON string the quotes of the name would be escaped.
    """
    at = data.rfind(b'"usage"')
    found = _USAGE.match(data, at) if at >= 0 else None
    try:
        return orjson.loads(found[1]) if found is not None else None
    except orjson.JSONDecodeError:
        return None


def counted(usage: object, prompt: str, output: str) -> Usage | None:
    """Usage from the counts under these names; cached tokens are in the prompt's details."""
    if not isinstance(usage, dict):
        return None
    prompt_len = count(usage.get(prompt))
    output_len = count(usage.get(output, 0))
    if prompt_len is None or output_len is None:
        return None
    details = usage.get(prompt + "_details")
    cached_len = count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached_len is not None and cached_len > prompt_len:
        cached_len = None
    return Usage(prompt_len, output_len, cached_len)


def count(value: Any) -> int | None:
    """The number of tokens, None if `value` is none."""
    return value if isinstance(value, int) and value >= 0 else None
