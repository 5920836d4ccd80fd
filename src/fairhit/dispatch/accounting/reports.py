"""Usage reports of engines: made plausible, compared with the estimates, and learnt from."""

from fairhit.dispatch.accounting.estimate_errors import EstimateErrors
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.dispatch.engine import Engine
from fairhit.dispatch.ticket import Ticket, Usage

# Tokens by which a prompt may exceed its text: images named by a URL, the chat template.
_MAX_UNSEEN = 1 << 17
# Above this ratio the text is not the source of the tokens: an image in base64, a truncated prompt.
_MAX_BYTES_A_TOKEN = 32
# OpenAI's limit on the answers to one prompt.
_MAX_CHOICES = 128


class Reports:
    """Replaces a ticket's estimates by its engine's report; updates token scale and estimate errors."""

    def __init__(self, *, scale: TokenScale, estimates: EstimateErrors) -> None:
        self.scale = scale
        self.estimates = estimates

    def learn(self, ticket: Ticket, engine: Engine | None, usage: Usage) -> int:
        """Replace the ticket's estimates by `usage`; return the prompt tokens that were computed. O(1).

        A report of 0 prompt tokens says nothing about the prompt, and its estimate stays.
        """
        # Each prompt of a batch is answered, and each has at least one token.
        answers = _MAX_CHOICES + ticket.request.input_len
        ticket.output_len = min(usage.output_len, ticket.request.max_tokens * answers)
        if not usage.prompt_len:
            return ticket.estimated_len
        if engine is not None and usage.by_flag:
            usage = _completed(engine, usage)
        request, text_len = ticket.request, ticket.text_len
        # One absurd report must not decide a client's share for hours. A token has at least one byte.
        prompt_len = min(usage.prompt_len, (text_len or request.input_len) + _MAX_UNSEEN)
        if prompt_len <= text_len <= prompt_len * _MAX_BYTES_A_TOKEN:
            self.scale.learn(text_len, prompt_len)
        cached_len = ticket.matched_len if usage.cached_len is None else usage.cached_len
        extend_len = max(1, prompt_len - cached_len)
        if usage.cached_len is not None:
            self.estimates.compare(
                ticket.worker,
                estimated=ticket.estimated_len,
                reported=extend_len,
                prompt_len=prompt_len,
            )
        ticket.matched_len = max(0, prompt_len - extend_len)
        return extend_len


def _completed(engine: Engine, usage: Usage) -> Usage:
    """Return `usage` with an omitted zero added.

    vLLM 0.15 to 0.20 omit the cached tokens if there are none: from an engine that has reported cached
    tokens before, no report means none.
    """
    if usage.cached_len is not None:
        engine.reports_cached = True
    elif engine.reports_cached:
        return usage._replace(cached_len=0)
    else:
        engine.reports_cached = False
    return usage
