"""What a path of the API is to the gateway: data and a few pure functions, one `Endpoint` a path.

A path says where its prompt, its limit on tokens, its usage and its text are, and what its errors
look like. Everything else is the same for all of them, and knows no path.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairhit.dispatch import Usage

Document = dict[str, Any]
# The prompt's parts in canonical form (a prefix of them is a prefix of the prompt), or its tokens
# if it came as tokens, 4 bytes each; and how many prompts the body has.
Prompt = tuple[list[str], bytes | None, int]

# Assumed where the caller sets no limit: routers only use it to cap what they expect of a request.
UNLIMITED = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamFormat:
    """How text is found in events, without parsing them.

    `find` gives the kind and the text of each piece, still escaped as in JSON. Inside a JSON string
    a quote is escaped, so that a text which quotes the pattern cannot match it. Expressions are possessive:
    they look at no byte twice, and cost a tenth of those that remember where they may turn back.
    """

    find: Callable[[bytes], list[tuple[bytes, bytes]]]
    answer_kinds: frozenset[bytes]  # kinds that the next turn of the conversation repeats
    reasoning_kinds: frozenset[bytes]  # kinds that some engines write twice, under two names
    # Whether whole events, any number of them, say no more than that the request has come. Engines send
    # these before they take it in. None: no event does.
    is_preamble: Callable[[bytes], object] | None = None


# Of a path that has no streams, or none with text.
SILENT = StreamFormat(
    find=re.compile(rb"(?!)()()").findall, answer_kinds=frozenset(), reasoning_kinds=frozenset()
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Endpoint:
    """One path. `read_prompt` raises BadRequest; the others take whatever an engine sent."""

    name: str  # short, for labels
    read_prompt: Callable[[Document], Prompt]
    limits: tuple[str, ...] = ()  # the fields that limit the output, the first that is set wins
    default_limit: int = UNLIMITED
    identity: bool = True  # engines take `vllm_xargs` here
    named_by_header: bool = False  # SGLang takes the client here, and in no field
    usage_option: bool = False  # ... and `stream_options.include_usage`
    cached: bool = True  # prompts stay in the engines' prefix caches
    charged: bool = True  # a model runs
    stream_format: StreamFormat = SILENT
    # Usage in an answer or an event; a prompt of no tokens stands for one that it does not report.
    read_usage: Callable[[Document], Usage | None]
    # Where answers are too long to be parsed for the little they say.
    scan_usage: Callable[[bytes], Usage | None] | None = None
    read_text: Callable[[Document], str | None] | None = None
    turns: bool = True  # an answer is a message of the next prompt, or else it continues this one
    error_body: Callable[[Exception, int], bytes]
    error_event: Callable[[Exception, int], bytes]
