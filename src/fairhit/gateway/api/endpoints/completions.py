"""/v1/completions: a prompt, a batch of them, or their tokens in; text out."""

from fairhit.gateway.api.endpoints.chat import STREAMED, only_choice
from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt
from fairhit.gateway.api.endpoints.errors import openai_error, openai_event
from fairhit.gateway.api.endpoints.prompts import given_prompt
from fairhit.gateway.api.endpoints.usage import completion_usage

# OpenAI's default for the older endpoint.
_LIMIT = 16


def _read_prompt(document: Document) -> Prompt:
    if document.get("prompt") is None and document.get("prompt_embeds") is not None:
        return [], None, 1
    return given_prompt(document, "prompt")


def _read_text(document: Document) -> str | None:
    text = only_choice(document).get("text")
    return text if isinstance(text, str) else None


COMPLETIONS = Endpoint(
    name="completions",
    read_prompt=_read_prompt,
    limits=("max_completion_tokens", "max_tokens"),
    default_limit=_LIMIT,
    usage_option=True,
    stream_format=STREAMED,
    read_usage=completion_usage,
    read_text=_read_text,
    is_conversation=False,
    error_body=openai_error,
    error_event=openai_event,
)
