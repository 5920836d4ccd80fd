"""Floor 1: the ideas, pure and with nothing but the standard library."""
