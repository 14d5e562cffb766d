"""One pass over memory: sources are copied or folded to one place or to several."""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.copies import stream
from hpcoll.kernels.intrinsics import (
    alloca64,
    load64,
    make_call_void,
    memcpy,
    process_vm_readv,
    store64,
)
from hpcoll.runtime.shared_recipe import FIRST, NDST, PEER
from hpcoll.runtime.words import BOUNCE, FOLD_FUNCTION, OPERANDS, PIDS

BLOCK_NBYTES = 32 << 10
"""What goes to several places goes there in blocks that the first-level cache holds."""

PULLED_NBYTES = 256 << 10
"""Blocks in which another process's private memory is read before it is folded."""

MOST_PULLED = 16
"""Most operands of a fold that are read from private memory."""

BOUNCE_NBYTES = BLOCK_NBYTES + MOST_PULLED * PULLED_NBYTES
"""Room of a channel for what is on its way between two places."""

_call_kernel = make_call_void(4)


@njit(nogil=True)
def _pull(channel: int, peer: int, target: int, address: int, nbytes: int) -> bool:
    """Read another process's private memory."""
    vectors = alloca64(4)
    store64(vectors, target)
    store64(vectors + 8, nbytes)
    store64(vectors + 16, address)
    store64(vectors + 24, nbytes)
    pid = load64(load64(channel + 8 * PIDS) + 8 * peer)
    return bool(process_vm_readv(pid, vectors, 1, vectors + 16, 1, 0) == nbytes)


@njit(nogil=True)
def combine(
    run: int, channel: int, sources: int, nsrc: int, targets: int, ndst: int, streams: int,
    nstream: int, nbytes: int,
) -> None:  # fmt: skip
    """Copy or fold once, into one place or several, some of them past the caches."""
    fold = load64(run + 8 * FOLD_FUNCTION)
    block = BLOCK_NBYTES
    if ndst + nstream == 1 and (nsrc == 1 or ndst == 1):
        block = nbytes
    at = 0
    while at < nbytes:
        part = min(block, nbytes - at)
        if nsrc == 1:
            source = load64(sources) + at
            first = 0
        else:
            source = load64(targets) + at if ndst > 0 else load64(channel + 8 * BOUNCE)
            _call_kernel(fold, source, sources, nsrc, part)
            for k in range(nsrc):
                store64(sources + 8 * k, load64(sources + 8 * k) + part)
            first = 1
        for k in range(first, ndst):
            target = load64(targets + 8 * k) + at
            if target != source:
                memcpy(target, source, part)
        for k in range(nstream):
            stream(load64(streams + 8 * k) + at, source, part)
        at += part


@njit(nogil=True)
def combine_pulled(
    run: int, channel: int, row: int, sources: int, nsrc: int, targets: int, ndst: int,
    streams: int, nstream: int, nbytes: int,
) -> bool:  # fmt: skip
    """The same where some sources are other processes' private memory: negative addresses."""
    operands = load64(run + 8 * OPERANDS) + 64 * load64(row + 8 * FIRST)
    if nsrc == 1 and ndst + nstream == 1:
        peer = load64(operands + 8 * PEER)
        target = load64(targets) if ndst == 1 else load64(streams)
        return _pull(channel, peer, target, -load64(sources), nbytes)
    bounce = load64(channel + 8 * BOUNCE) + BLOCK_NBYTES
    # The table of addresses has room for a second set of all.
    blocks = streams + 8 * load64(row + 8 * NDST)
    places = blocks + 8 * nsrc
    passes = places + 8 * ndst
    at = 0
    while at < nbytes:
        part = min(PULLED_NBYTES, nbytes - at)
        for k in range(nsrc):
            source = load64(sources + 8 * k)
            if source < 0:
                peer = load64(operands + 64 * k + 8 * PEER)
                if not _pull(channel, peer, bounce + k * PULLED_NBYTES, at - source, part):
                    return False
                store64(blocks + 8 * k, bounce + k * PULLED_NBYTES)
            else:
                store64(blocks + 8 * k, source + at)
        for k in range(ndst):
            store64(places + 8 * k, load64(targets + 8 * k) + at)
        for k in range(nstream):
            store64(passes + 8 * k, load64(streams + 8 * k) + at)
        combine(run, channel, blocks, nsrc, places, ndst, passes, nstream, part)
        at += part
    return True
