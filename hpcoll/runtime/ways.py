"""Which way of storing suits a pass over memory, and which of reading a call: measured.

Stores to lines that another core holds are slow on some machines and fast on others, and
so are streams past the caches; it depends on which caches two cores share, on sizes, and
on virtual machines it changes while a program runs. So whatever has several ways tries
them in its first uses, keeps to the best, measures it now and then, and seldom tries the
others again. No rank needs to know what another one does.
"""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.intrinsics import load64, store64

STREAM_SHARED, STREAM_OWN = 1, 2
"""Ways are sets of these: stream past the caches what others read, or this rank's result."""

OFFER = 2
"""A call's other way: let others read private memory instead of staging it."""

STATE_WORDS = 8
"""For each of four ways what it costs (cycles a KiB); uses; the best way."""

USES, BEST = 4, 5

MEASURE, AFRESH = 4, 8
"""Added to a way: its next use is to be measured; what was known of it counts no more."""

MASK = 3
"""The way itself."""

TRIAL = 4
"""A way is tried so many times in a row, and the last two tell: what one way leaves in the
caches another one suffers from."""

LEARNING = 4
"""Trials at the start: each way is tried at least once."""

PERIOD = 128
"""One trial in so many is not for the best way."""

READERS_PART = 8
"""A stream must be so many times as fast as plain stores to be worth it: its readers find
the data in memory rather than in a cache, and the writer doesn't see what that costs."""


@njit(nogil=True)
def choose_way(state: int, allowed: int) -> int:
    """The way for the next use, a subset of `allowed`, and whether to measure it."""
    uses = load64(state + 8 * USES)
    store64(state + 8 * USES, uses + 1)
    trial = uses // TRIAL
    use = uses & (TRIAL - 1)
    if trial >= LEARNING and trial % PERIOD != 0:
        best: int = load64(state + 8 * BEST)
        return best | MEASURE if use == TRIAL - 1 else best
    way: int = (trial if trial < LEARNING else trial // PERIOD) & allowed
    if use == TRIAL - 2:
        return way | MEASURE | AFRESH
    return way | MEASURE if use == TRIAL - 1 else way


@njit(nogil=True)
def learn_way(state: int, way: int, cycles: int, nbytes: int) -> None:
    """Note what a use cost: at once if it's less than known, else little by little."""
    cost = max(1, (cycles << 10) // nbytes)
    afresh = way & AFRESH
    way &= MASK
    known = load64(state + 8 * way)
    if 0 < known < cost and not afresh:
        cost = known + max(1, (min(cost, 2 * known) - known) >> 2)
    store64(state + 8 * way, cost)
    best = 0
    least = load64(state)
    for other in range(1, 4):
        cost = load64(state + 8 * other)
        if other & STREAM_SHARED:
            cost *= READERS_PART
        if 0 < cost < least:
            best, least = other, cost
    store64(state + 8 * BEST, best)
