"""Waiting for a word of shared memory: spin, yield, then sleep; and waking those who sleep."""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.intrinsics import (
    fetch_add,
    load64,
    load_acquire,
    now_ns,
    pause,
    sched_yield,
    store_release,
    syscall,
)
from hpcoll.runtime.segments import DOORBELL_AT, NAP_AT, SLEEPING_AT
from hpcoll.runtime.words import BRIEFLY, PAUSES, RANK, SEGMENTS, SHARED_YIELDS, SIZE, SLEEPERS

SYS_FUTEX = 202
FUTEX_WAIT, FUTEX_WAKE = 0, 1


@njit(nogil=True)
def _sleep(channel: int, address: int, tick: int) -> None:
    """Sleep until a peer rings, for at most a millisecond."""
    rank = load64(channel + 8 * RANK)
    mine = load64(load64(channel + 8 * SEGMENTS) + 8 * rank)
    sleepers = load64(channel + 8 * SLEEPERS)
    store_release(mine + SLEEPING_AT, 1)
    fetch_add(sleepers, 1)
    bell = load_acquire(mine + DOORBELL_AT) & 0xFFFFFFFF
    looks = 0
    while looks < 20 and load_acquire(address) < tick:
        pause()
        looks += 1
    if looks == 20:
        syscall(SYS_FUTEX, mine + DOORBELL_AT, FUTEX_WAIT, bell, mine + NAP_AT, 0, 0)
    fetch_add(sleepers, -1)
    store_release(mine + SLEEPING_AT, 0)


@njit(nogil=True)
def wake(channel: int) -> None:
    """Ring for all peers that sleep."""
    segments = load64(channel + 8 * SEGMENTS)
    rank = load64(channel + 8 * RANK)
    for peer in range(load64(channel + 8 * SIZE)):
        if peer != rank:
            segment = load64(segments + 8 * peer)
            if load_acquire(segment + SLEEPING_AT) != 0:
                fetch_add(segment + DOORBELL_AT, 1)
                syscall(SYS_FUTEX, segment + DOORBELL_AT, FUTEX_WAKE, 1, 0, 0, 0)


@njit(nogil=True)
def wait(channel: int, address: int, tick: int, slice_ns: int) -> bool:
    """Wait until a word has reached a tick; false when the time is up."""
    if slice_ns == 0:
        return False
    tries = load64(channel + 8 * PAUSES)
    while tries > 0:
        pause()
        if load_acquire(address) >= tick:
            return True
        tries -= 1
    if slice_ns == BRIEFLY:
        return False
    tries = load64(channel + 8 * SHARED_YIELDS)
    while tries > 0:
        sched_yield()
        if load_acquire(address) >= tick:
            return True
        tries -= 1
    start = now_ns()
    while True:
        _sleep(channel, address, tick)
        if load_acquire(address) >= tick:
            return True
        if now_ns() - start > slice_ns:
            return False
