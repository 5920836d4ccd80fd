"""Tenants that are LoRA adapters, on a real vLLM."""
