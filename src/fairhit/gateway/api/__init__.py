"""The OpenAI-compatible API: request bodies, injected fields, response bodies, endpoints."""
