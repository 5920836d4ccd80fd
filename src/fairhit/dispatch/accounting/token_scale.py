"""Estimated length of a text in tokens, from its length in bytes."""

# Bytes over which the mean is taken: enough to be steady, little enough to follow a change of model or
# language within a few dozen long prompts.
_WINDOW = 1 << 22


class TokenScale:
    """Mean bytes per token, learnt from engines' reports; four until the first report."""

    def __init__(self) -> None:
        self._bytes, self._tokens = 4096, 1024

    def tokens(self, text_len: int) -> int:
        """Estimate the tokens of a text of `text_len` bytes. O(1)."""
        return text_len * self._tokens // self._bytes

    def learn(self, text_len: int, tokens: int) -> None:
        """Take into account a text of `text_len` bytes that had `tokens` tokens. O(1)."""
        self._bytes += text_len
        self._tokens += tokens
        if self._bytes > _WINDOW:
            self._bytes //= 2
            self._tokens = max(1, self._tokens // 2)
