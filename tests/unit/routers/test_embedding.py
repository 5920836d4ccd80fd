"""The example of an embedded router runs as it stands, with the public names only."""

import ast
import subprocess
import sys
from pathlib import Path

import fairhit
from fairhit import routing

EXAMPLE = Path(__file__).parents[3] / "examples/embed_router.py"

PRINTED = """\
crowd-1  -> e2:   0 of 510 tokens cached there; credit was [1000, 1000, 1000]
crowd-2  -> e2: 384 of 510 tokens cached there; credit was [1000, 90, 1000]
crowd-3  -> e3:   0 of 510 tokens cached there; credit was [1000, -436, 1000]
quiet-4  -> e1:   0 of 492 tokens cached there; credit was [1000, 1000, 1000]
crowd-5  -> e3: 383 of 510 tokens cached there; credit was [1000, -436, 90]
crowd-6  -> e1:   0 of 510 tokens cached there; credit was [1000, -436, -437]
crowd-7  -> e1: 383 of 510 tokens cached there; credit was [90, -436, -437]
quiet-8  -> e1: 383 of 492 tokens cached there; credit was [468, 1000, 1000]
crowd-9  -> e2: 383 of 510 tokens cached there; credit was [-437, -436, -437]
crowd-10 -> e2: 383 of 510 tokens cached there; credit was [563, 37, 563]
quiet-11 -> e1: 383 of 492 tokens cached there; credit was [319, 1000, 1000]
e1 fails
quiet-11 -> e2: sent again
crowd: 2164 prompt tokens computed, 1916 cached, 1600 emitted
quiet: 1093 prompt tokens computed, 383 cached, 60 emitted
"""


def test_the_example_sends_each_request_where_the_page_says():
    """
    The flood stays where its prefix is cached until its quantum there is used, then moves on.
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

    assert {module for module, _ in imported} == {"fairhit", "fairhit.routing"}
    assert {name for module, name in imported if module == "fairhit"} <= set(fairhit.__all__)
    own = {name for module, name in imported if module == "fairhit.routing"}
    assert own <= set(routing.__all__)
    assert all(hasattr(routing, name) for name in routing.__all__)
