"""One real vLLM server with the plug-in, and nothing of ours in front of it."""
