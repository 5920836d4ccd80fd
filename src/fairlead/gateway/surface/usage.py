"""What an answer says it took. Only what is complete and plausible counts."""

from typing import Any

from fairlead.dispatch import Usage
from fairlead.gateway.surface.surface import Document


def completion_usage(document: Document) -> Usage | None:
    """As chat, completions and embeddings report it: each report is complete."""
    return counted(document.get("usage"), "prompt_tokens", "completion_tokens")


def counted(usage: object, prompt: str, output: str) -> Usage | None:
    """The counts under these names; cached tokens are in the prompt's details."""
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
    return Usage(prompt_len=prompt_len, output_len=output_len, cached_len=cached_len)


def count(value: Any) -> int | None:
    """A number of tokens, None if it is none."""
    return value if isinstance(value, int) and value >= 0 else None
