"""/tokenize, /detokenize and /v1/messages/count_tokens: no model runs, so nothing is charged.

Requests count towards the client's limit of requests in flight like any others.
"""

from dataclasses import replace

from fairhit.dispatch import Usage
from fairhit.gateway.api.endpoints.endpoint import Document, Endpoint, Prompt
from fairhit.gateway.api.endpoints.errors import (
    anthropic_error,
    anthropic_event,
    openai_error,
    openai_event,
)


def _read_prompt(document: Document) -> Prompt:  # noqa: ARG001 - the content has no effect
    return [], None, 1


def _read_usage(document: Document) -> Usage | None:  # noqa: ARG001 - there is none
    return None


TOKENIZE = Endpoint(
    name="tokenize",
    read_prompt=_read_prompt,
    default_limit=1,
    identity=False,
    cached=False,
    charged=False,
    read_usage=_read_usage,
    error_body=openai_error,
    error_event=openai_event,
)
COUNT_TOKENS = replace(
    TOKENIZE, name="count-tokens", error_body=anthropic_error, error_event=anthropic_event
)
