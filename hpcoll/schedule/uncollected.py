"""Building many small objects without the garbage collector looking at them again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector of reference cycles; schedules and tables have none.

    It would walk over all of a growing schedule each time that it has grown by a
    quarter, which takes longer than to make it.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
