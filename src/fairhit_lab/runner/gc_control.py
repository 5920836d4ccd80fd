"""Python's garbage collector during a simulation: it would find nothing, and look all the time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Millions of live objects, hardly a cycle among them: looking for some takes most of the time.

    Where collection is off already, it is left to whoever turned it off.
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
