"""A real vLLM server with the plug-in, without our gateway."""
