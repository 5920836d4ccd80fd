"""GPUs, models, and how long a forward pass takes."""
