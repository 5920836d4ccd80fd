"""The KV memory of simulated engines."""
