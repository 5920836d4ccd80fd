"""The summary of a run as a JSON object."""
