"""The plug-in on a real SGLang, in its own environment: `make sglang`."""
