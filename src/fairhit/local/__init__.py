"""Engines and a gateway on this machine: `fairhit serve` and `fairhit demo`."""
