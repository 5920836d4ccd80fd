"""Every experiment for real, in its quick form."""
