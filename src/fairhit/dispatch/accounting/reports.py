"""What an engine says a request took: made plausible, and learnt from."""

from fairhit.dispatch.accounting.estimate_errors import EstimateErrors
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.dispatch.engine import Engine
from fairhit.dispatch.ticket import Ticket, Usage

# What a prompt may be longer than its text: images named by a URL, a template's own words.
_MAX_UNSEEN = 1 << 17
# Beyond this a text is not what was counted: an image in base64, a prompt the engine cut.
_MAX_BYTES_A_TOKEN = 32
# OpenAI's limit on the answers to one prompt.
_MAX_CHOICES = 128


class Reports:
    """Compares the estimates with what was reported, and betters the scale they are made with."""

    def __init__(self, *, scale: TokenScale, estimates: EstimateErrors) -> None:
        self.scale = scale
        self.estimates = estimates

    def learn(self, ticket: Ticket, worker: Engine | None, usage: Usage) -> int:
        """Replace the ticket's estimates by what its engine said; the prompt tokens it computed. O(1).

        No prompt has no tokens: of one the engine said nothing, and the estimate stands.
        """
        # Of a batch, each prompt is answered, and each has a token at least.
        answers = _MAX_CHOICES + ticket.request.input_len
        ticket.output_len = min(usage.output_len, ticket.request.max_tokens * answers)
        if not usage.prompt_len:
            return ticket.estimated_len
        if worker is not None and usage.by_flag:
            usage = _completed(worker, usage)
        request, text_len = ticket.request, ticket.text_len
        # One absurd answer must not decide a client's share for hours. No token is less than a byte.
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


def _completed(worker: Engine, usage: Usage) -> Usage:
    """`usage` with the zero that was left out: vLLM 0.15 to 0.20 leave the details out if nothing
    was cached, and from an engine that has reported cached tokens silence means none.
    """
    if usage.cached_len is not None:
        worker.reports_cached = True
    elif worker.reports_cached:
        return usage._replace(cached_len=0)
    else:
        worker.reports_cached = False
    return usage
