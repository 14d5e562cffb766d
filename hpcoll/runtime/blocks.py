"""Where a tick's block lies in the segments; all ranks count alike."""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.intrinsics import load64, store64
from hpcoll.runtime.segments import (
    BLOCKS_AT,
    DEPTH,
    RING_AT,
    RING_NBYTES,
    SMALL_NBYTES,
    SMALL_STRIDE,
)
from hpcoll.runtime.words import BLOCK_NBYTES, CHANNEL, PIECES, RING_FROM, RING_POSITION


@njit(nogil=True)
def take_blocks(run: int) -> None:
    """Take the next blocks of the ring for a run's pieces."""
    nbytes = load64(run + 8 * BLOCK_NBYTES)
    if nbytes <= SMALL_NBYTES:
        return
    channel = load64(run + 8 * CHANNEL)
    begin = load64(channel + 8 * RING_POSITION)
    if begin + nbytes > RING_NBYTES:
        begin = 0
    store64(run + 8 * RING_FROM, begin)
    last = ring_block(begin, load64(run + 8 * PIECES) - 1, nbytes)
    store64(channel + 8 * RING_POSITION, last + nbytes)


@njit(nogil=True)
def ring_block(begin: int, k: int, nbytes: int) -> int:
    """Where the k-th block lies if the first one is at `begin`: at 0 where the ring ends."""
    at = begin + k * nbytes
    if at + nbytes > RING_NBYTES:
        k -= (RING_NBYTES - begin) // nbytes
        at = k % (RING_NBYTES // nbytes) * nbytes
    return at


@njit(nogil=True)
def block_at(run: int, k: int, tick: int) -> int:
    """Offset in a segment of the block of a run's k-th piece."""
    nbytes = load64(run + 8 * BLOCK_NBYTES)
    if nbytes <= SMALL_NBYTES:
        return BLOCKS_AT + (tick & (DEPTH - 1)) * SMALL_STRIDE
    return RING_AT + ring_block(load64(run + 8 * RING_FROM), k, nbytes)
