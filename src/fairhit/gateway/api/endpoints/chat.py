"""/v1/chat/completions: messages in, choices out; streams have a delta in each event, usage in the last."""

import re

from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt, StreamFormat
from fairhit.gateway.api.endpoints.errors import openai_error, openai_event
from fairhit.gateway.api.endpoints.prompts import conversation, tools_first
from fairhit.gateway.api.endpoints.usage import completion_usage

# Fields of a chat delta or a completion: text, reasoning, arguments of a tool.
STREAMED = StreamFormat(
    find=re.compile(
        rb'"(content|text|reasoning_content|reasoning|arguments)": *"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
    ).findall,
    answer_kinds=frozenset((b"content", b"text")),
    reasoning_kinds=frozenset((b"reasoning_content", b"reasoning")),
)


def read_prompt(document: Document) -> Prompt:
    """Role and content of each message in order, after the tools, which chat templates put first."""
    return conversation(document, "messages", parts=tools_first(document)), None, 1


def only_choice(document: Document) -> Document:
    """The choice of a response with exactly one; else an empty one."""
    choices = document.get("choices")
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        return choices[0]
    return {}


def _read_text(document: Document) -> str | None:
    message = only_choice(document).get("message")
    text = message.get("content") if isinstance(message, dict) else None
    return text if isinstance(text, str) else None


CHAT = Endpoint(
    name="chat",
    read_prompt=read_prompt,
    limits=("max_completion_tokens", "max_tokens"),
    usage_option=True,
    stream_format=STREAMED,
    read_usage=completion_usage,
    read_text=_read_text,
    error_body=openai_error,
    error_event=openai_event,
)
