"""These tests are run by `make sglang`, whose environment has SGLang; elsewhere there is nothing to collect.

Not skipped, for CI takes no skips: it runs on one environment, and vLLM and SGLang do not share one.
"""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("sglang") else ["test_*.py"]
