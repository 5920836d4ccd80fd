"""/v1/responses: instructions and items in, items out; streams have named events, usage in the last.

Features that need state between requests are refused: only one engine would have the state, and work in
the background would not be charged.
"""

import re

from fairhit.errors import BadRequest
from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt, StreamFormat
from fairhit.gateway.api.endpoints.errors import openai_error, responses_event
from fairhit.gateway.api.endpoints.prompts import conversation, joined_texts, tools_first
from fairhit.gateway.api.endpoints.usage import response_usage

_TEXTS = frozenset(("input_text", "output_text", "text"))
# Fields of a message of an earlier response that do not reach the model.
_INCIDENTAL = frozenset(("id", "status", "type", "phase"))
_OF_ONE_ENGINE = ("previous_response_id", "conversation")

# The name of an event is the kind of its delta. Summaries of reasoning are sent beside the reasoning.
_STREAMED = StreamFormat(
    find=re.compile(
        rb"event: *response\.([a-z_]+)\.delta\r?\n"
        rb'data:[^\r\n]*?"delta": *"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
    ).findall,
    answer_kinds=frozenset((b"output_text",)),
    reasoning_kinds=frozenset((b"reasoning_text", b"reasoning", b"reasoning_summary_text")),
    # vLLM and SGLang send the first two before the request is added to the engine's queue.
    is_preamble=re.compile(
        rb"(?:event: *response\.(?:created|in_progress|queued)"
        rb"(?:\ndata:[^\r\n]*\n\n|\r\ndata:[^\r\n]*\r\n\r\n))*"
    ).fullmatch,
)


def _read_prompt(document: Document) -> Prompt:
    """The canonical form of the same conversation by chat: tools, instructions, messages."""
    _refuse_memory(document)
    parts = tools_first(document)
    instructions = document.get("instructions")
    if isinstance(instructions, str):
        parts += ("system", instructions)
    given = document.get("input")
    if isinstance(given, str):
        return [*parts, "user", given], None, 1
    if not isinstance(given, list) or not given:
        raise BadRequest("input must be a string or a list of at least one item", param="input")
    return conversation(
        document, "input", parts=parts, texts=_TEXTS, incidental=_INCIDENTAL, others=True
    ), None, 1  # fmt: skip


def _refuse_memory(document: Document) -> None:
    for name in _OF_ONE_ENGINE:
        if document.get(name) is not None:
            reason = "the gateway's engines share no responses; send the conversation as input"
            raise BadRequest(f"{name} is not supported: {reason}", param=name)
    if document.get("background"):
        raise BadRequest("background responses are not supported", param="background")


def _read_text(document: Document) -> str | None:
    """The text of the only message, which the conversation's next prompt repeats."""
    output = document.get("output")
    if not isinstance(output, list):
        return None
    messages = [one for one in output if isinstance(one, dict) and one.get("type") == "message"]
    return joined_texts(messages[0].get("content")) if len(messages) == 1 else None


RESPONSES = Endpoint(
    name="responses",
    read_prompt=_read_prompt,
    limits=("max_output_tokens",),
    stream_format=_STREAMED,
    read_usage=response_usage,
    read_text=_read_text,
    error_body=openai_error,
    error_event=responses_event,
)
