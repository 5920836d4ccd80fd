"""Two stock vLLM servers, one that writes and one that embeds, and the gateway in front of them."""
