"""The waiting requests, ordered by how much of each prompt is cached."""
