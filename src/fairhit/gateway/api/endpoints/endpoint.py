"""Description of an API endpoint: data and a few pure functions, one `Endpoint` for each.

An endpoint defines where its prompt, its token limit, its usage and its answer text are, and the shape of
its errors. Everything else of the gateway is the same for all endpoints.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairhit.dispatch import Usage

Document = dict[str, Any]
# Parts of the prompt in canonical form (a prefix of them is a prefix of the prompt), or its tokens, 4 bytes
# each, if it was sent as tokens; and the number of prompts in the body.
Prompt = tuple[list[str], bytes | None, int]

# Assumed without a limit in the request: routers only use it to cap the expected output.
UNLIMITED = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamFormat:
    """Patterns that find text in the events of a stream, without parsing them.

    `find` returns the kind and the text of each piece, escaped as in JSON. Inside a JSON string a quote is
    escaped, so that text which quotes the pattern cannot match it. Expressions are possessive: without
    backtracking they cost a tenth.
    """

    find: Callable[[bytes], list[tuple[bytes, bytes]]]
    answer_kinds: frozenset[bytes]  # kinds that the conversation's next prompt repeats
    reasoning_kinds: frozenset[bytes]  # kinds that some engines send under two names
    # Matches complete events, any number of them, that only acknowledge the request: engines send these
    # preamble events before the request is in their queue. None: there are none.
    is_preamble: Callable[[bytes], object] | None = None


# For endpoints without streams, or without text in them.
SILENT = StreamFormat(
    find=re.compile(rb"(?!)()()").findall, answer_kinds=frozenset(), reasoning_kinds=frozenset()
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Endpoint:
    """Description of one endpoint. `read_prompt` raises BadRequest; the others take any JSON of an engine."""

    name: str  # short, for labels
    read_prompt: Callable[[Document], Prompt]
    limits: tuple[str, ...] = ()  # fields that limit the output; the first that is set counts
    default_limit: int = UNLIMITED
    identity: bool = True  # engines take `vllm_xargs` at this endpoint
    named_by_header: bool = False  # SGLang takes the client from a header, and from no field
    usage_option: bool = False  # engines take `stream_options.include_usage`
    cached: bool = True  # prompts stay in the engines' prefix caches
    charged: bool = True  # a model runs
    stream_format: StreamFormat = SILENT
    # Usage in a response or an event; a prompt of 0 tokens: not reported.
    read_usage: Callable[[Document], Usage | None]
    # Instead, for responses that are long and mostly numbers.
    scan_usage: Callable[[bytes], Usage | None] | None = None
    read_text: Callable[[Document], str | None] | None = None
    is_conversation: bool = (
        True  # an answer is a message of the next prompt; else it continues this prompt
    )
    error_body: Callable[[Exception, int], bytes]
    error_event: Callable[[Exception, int], bytes]
