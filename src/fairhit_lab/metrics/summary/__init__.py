"""One run in one JSON object."""
