"""/v1/embeddings: texts or their tokens in, vectors out.

vLLM accepts no client identity with these requests, so only the gateway's queue is fair for them; and engines
report no cached tokens, so prompts are charged in full.
"""

from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt
from fairhit.gateway.api.endpoints.errors import openai_error, openai_event
from fairhit.gateway.api.endpoints.prompts import conversation, given_prompt
from fairhit.gateway.api.endpoints.usage import pooling_usage, scanned_usage


def _read_prompt(document: Document) -> Prompt:
    if document.get("input") is None and document.get("messages") is not None:
        return conversation(document, "messages", parts=[]), None, 1  # vLLM accepts these, too
    return given_prompt(document, "input")


EMBEDDINGS = Endpoint(
    name="embeddings",
    read_prompt=_read_prompt,
    default_limit=1,
    identity=False,
    cached=False,
    read_usage=pooling_usage,
    scan_usage=scanned_usage,
    error_body=openai_error,
    error_event=openai_event,
)
