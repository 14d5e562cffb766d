"""Copies past the caches, for what another core will read."""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.intrinsics import memcpy, stream_lines

LINE_NBYTES = 64


@njit(nogil=True)
def stream(target: int, source: int, nbytes: int) -> None:
    """Copy; `stores_done` must come before the word that announces it."""
    head = min(-target & (LINE_NBYTES - 1), nbytes)
    lines = (nbytes - head) // LINE_NBYTES
    body = head + lines * LINE_NBYTES
    if head > 0:
        memcpy(target, source, head)
    if lines > 0:
        stream_lines(target + head, source + head, lines)
    if body < nbytes:
        memcpy(target + body, source + body, nbytes - body)
