"""KV events of vLLM and SGLang over ZMQ: what the engines report of their prefix caches."""
