"""The batching loops of simulated engines."""
