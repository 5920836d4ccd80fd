"""The bounds on the event loop's work: how many bytes one step handles, and all steps of one turn.

A turn of the loop is all that happens between two looks for what else has come. Work on long bodies and
answers is cut into steps, and the steps of a turn are counted (`turns`), so that a health check waits for
one turn at most, whatever callers and engines send.
"""

from typing import Final

# Bytes that one step reads: parses, searches, or decodes. uvloop reads no more from a socket at once.
# The worst JSON takes 160 ns a byte, and this 40 ms; text takes 2 to 20 ns a byte.
STEP: Final = 256 << 10
# Bytes that the steps of one turn read together, and bytes of a body's text that are parsed in one call: of
# few lists and objects, which are what makes JSON slow.
TURN: Final = 4 * STEP
# What is shorter is neither counted nor made to wait: a request or an event of the usual length.
SHORT: Final = 16 << 10
