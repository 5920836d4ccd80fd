"""Thin translators between an engine's requests and ours."""
