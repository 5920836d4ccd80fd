"""Prefix caches as a policy sees them: a radix tree of tokens, a set of block hashes, a view of either."""
