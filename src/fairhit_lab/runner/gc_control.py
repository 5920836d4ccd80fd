"""Python's garbage collector during a simulation: it would find nothing, and look all the time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Turns cyclic garbage collection off in the block.

    With millions of live objects and few cycles it would take most of the time.
    If collection is off already, the caller that turned it off turns it on again.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
