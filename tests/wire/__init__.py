"""Malformed and hostile bytes on a connection: raw requests and answers, each with its outcome."""
