"""The example of an embedded queue runs as it stands, with the public names only."""

import ast
import subprocess
import sys
from pathlib import Path

import fairhit

EXAMPLE = Path(__file__).parents[3] / "examples/embed_scheduler.py"

PRINTED = """\
step  0: crowd-0  admitted,  0 tokens cached
step  0: quiet-6  admitted,  0 tokens cached
step  0: quiet-7  admitted,  0 tokens cached
step  4: crowd-1  admitted, 64 tokens cached
step  8: crowd-2  admitted, 64 tokens cached
step 12: crowd-3  admitted, 64 tokens cached
step 16: crowd-4  admitted, 64 tokens cached
step 20: crowd-5  admitted, 64 tokens cached
crowd: 184 prompt tokens computed, 320 cached, 48 emitted
quiet: 80 prompt tokens computed, 0 cached, 8 emitted
"""


def test_the_example_admits_what_it_says():
    """
    The quiet client's first request goes before the crowd's flood, whose prefix is cached by then.
    """
    run = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)

    assert run.stdout == PRINTED


def test_the_example_needs_public_names_only():
    imported = {
        (node.module, name.name)
        for node in ast.walk(ast.parse(EXAMPLE.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    own = {name for module, name in imported if module.startswith("fairhit")}
    assert {module for module, _ in imported} == {"fairhit", "hashlib"}
    assert own <= set(fairhit.__all__)
