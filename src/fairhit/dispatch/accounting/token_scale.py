"""How many tokens a text has, from its length in bytes."""

# Bytes of text whose length in tokens is remembered: enough for a steady mean, little enough that
# it follows a change of model or language within a few dozen long prompts.
_MEMORY = 1 << 22


class TokenScale:
    """Bytes of text -> tokens: four bytes to a token until engines have said better."""

    def __init__(self) -> None:
        self._bytes, self._tokens = 4096, 1024

    def tokens(self, text_len: int) -> int:
        """The estimate for a text of `text_len` bytes. O(1)."""
        return text_len * self._tokens // self._bytes

    def learn(self, text_len: int, tokens: int) -> None:
        """A text of `text_len` bytes was `tokens` long. O(1)."""
        self._bytes += text_len
        self._tokens += tokens
        if self._bytes > _MEMORY:
            self._bytes //= 2
            self._tokens = max(1, self._tokens // 2)
