"""The compiled interpreter of rows over shared memory.

Every rank publishes in its own segment and reads in those of others. A publication
has a line of 64 bytes: the tick it was made at, the call's mark (its number and its
signature in one word), and then either its payload or where that lies. Each piece of
each call has a tick of its own, the same on all ranks; a line, and a slot, is used again
`depth` ticks later, once all ranks are done with what was there.
"""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.copies import stream
from hpcoll.kernels.intrinsics import (
    alloca64,
    fetch_add,
    load64,
    load_acquire,
    make_call_void,
    memcpy,
    now_ns,
    pause,
    process_vm_readv,
    sched_yield,
    store64,
    store_release,
    stores_done,
    syscall,
    usleep,
)
from hpcoll.runtime.segments import DONE_AT, DOORBELL_AT, NAP_AT, SLEEPING_AT
from hpcoll.runtime.shared_recipe import (
    BASE,
    CHECK,
    DEPTH_STRIDE,
    DIVIDE,
    EXTRA,
    FIRST,
    LINE,
    NBYTES,
    NDST,
    NSRC,
    OFFSET,
    OP,
    OPTIONS,
    PEER,
    PIECE_STRIDE,
    PUSH,
    PUSHED,
    READERS,
    RESOLVE,
    ROW_SKEW,
    STAGE,
    WAIT_LINE,
    WHOLE,
)
from hpcoll.runtime.words import (
    ACK_COUNT,
    ACKS,
    ADDRESSES,
    ALIASED,
    AWAITED,
    BASES,
    BOUNCE,
    CALL,
    CHANNEL,
    DEPTH_MASK,
    DIVIDE_FUNCTION,
    DONE,
    FIRST_TICK,
    FOLD_FUNCTION,
    HEAP_BEGIN,
    HEAP_END,
    HEAPS,
    HEARS_ALL,
    ITERATION,
    KNOWN,
    LINE_STRIDE,
    MARK,
    OFFERED_DST,
    OFFERED_SRC,
    OFFERS_MEMORY,
    OPERAND,
    OPERANDS,
    PAUSES,
    PENDING,
    PIDS,
    PIECE_NBYTES,
    PIECES,
    RANK,
    ROW,
    ROW_COUNT,
    ROWS,
    SEGMENTS,
    SERVED,
    SHARED_YIELDS,
    SIGNATURE,
    SIZE,
    SKEW,
    SLEEPERS,
    STREAM_FROM,
    TICKS,
    TURN,
    TURNS,
    UNREADABLE,
)

BLOCK_NBYTES = 32 << 10
"""What goes to several places goes there in blocks that the first-level cache holds."""

PULLED_NBYTES = 256 << 10
"""Blocks in which another process's private memory is read before it is folded."""

MOST_PULLED = 16
"""Most operands of a fold that are read from private memory."""

BOUNCE_NBYTES = BLOCK_NBYTES + MOST_PULLED * PULLED_NBYTES
"""Room of a channel for what is on its way between two places."""

SYS_FUTEX = 202
FUTEX_WAIT, FUTEX_WAKE = 0, 1

_call_kernel = make_call_void(4)


@njit(nogil=True)
def begin_shared(run: int) -> None:
    """Take the next ticks, and note which of the arrays other ranks can read."""
    channel = load64(run + 8 * CHANNEL)
    ticks = load64(channel + 8 * TICKS)
    store64(run + 8 * FIRST_TICK, ticks + 1)
    store64(channel + 8 * TICKS, ticks + load64(run + 8 * PIECES))
    turn = load64(channel + 8 * TURNS)
    store64(run + 8 * TURN, turn)
    store64(channel + 8 * TURNS, turn + 1)
    store64(run + 8 * ITERATION, 0)
    store64(run + 8 * OPERAND, 0)
    store64(run + 8 * AWAITED, -1)
    store64(run + 8 * MARK, load64(run + 8 * SIGNATURE) ^ load64(run + 8 * CALL))
    heap, end = load64(channel + 8 * HEAP_BEGIN), load64(channel + 8 * HEAP_END)
    bases = load64(run + 8 * BASES)
    for k in range(2):
        address = load64(bases + 8 * k)
        offered = 0
        if heap <= address < end:
            offered = address - heap
        elif load64(run + 8 * OFFERS_MEMORY) != 0:
            offered = -address
        store64(run + 8 * (OFFERED_SRC + k), offered)


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
def _wake(channel: int) -> None:
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
def _wait(channel: int, address: int, tick: int, slice_ns: int) -> bool:
    """Wait until a word has reached a tick; false when the time is up."""
    if slice_ns == 0:
        return False
    tries = load64(channel + 8 * PAUSES)
    while tries > 0:
        pause()
        if load_acquire(address) >= tick:
            return True
        tries -= 1
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


@njit(nogil=True)
def _pull(channel: int, peer: int, target: int, address: int, nbytes: int) -> bool:
    """Read another process's private memory."""
    vectors = alloca64(4)
    store64(vectors, target)
    store64(vectors + 8, nbytes)
    store64(vectors + 16, address)
    store64(vectors + 24, nbytes)
    pid = load64(load64(channel + 8 * PIDS) + 8 * peer)
    return process_vm_readv(pid, vectors, 1, vectors + 16, 1, 0) == nbytes


@njit(nogil=True)
def _combine(
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
def _combine_pulled(
    run: int, channel: int, row: int, operands: int, sources: int, nsrc: int, targets: int,
    ndst: int, streams: int, nstream: int, nbytes: int,
) -> bool:  # fmt: skip
    """The same where some sources are other processes' private memory: negative addresses."""
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
        _combine(run, channel, blocks, nsrc, places, ndst, passes, nstream, part)
        at += part
    return True


@njit(nogil=True)
def _carry_out(
    run: int, channel: int, row: int, k: int, tick: int, operand: int, slice_ns: int
) -> int:
    """One row of one piece: wait for its operands, combine them, publish."""
    slot = tick & load64(channel + 8 * DEPTH_MASK)
    line_shift = slot * load64(channel + 8 * LINE_STRIDE)
    segments = load64(channel + 8 * SEGMENTS)
    mark = load64(run + 8 * MARK)
    nsrc = load64(row + 8 * NSRC)
    operands = load64(run + 8 * OPERANDS) + 64 * load64(row + 8 * FIRST)
    while operand < nsrc:
        entry = operands + 64 * operand
        line = load64(entry + 8 * WAIT_LINE)
        if line >= 0:
            peer = load64(entry + 8 * PEER)
            address = load64(segments + 8 * peer) + line + line_shift
            if load_acquire(address) < tick and not _wait(channel, address, tick, slice_ns):
                store64(run + 8 * OPERAND, operand)
                store64(run + 8 * AWAITED, peer)
                return PENDING
            if load64(address + 8) != mark:
                # The peer is in another call: the ranks will find out by their letters.
                if slice_ns != 0:
                    usleep(1000)
                store64(run + 8 * OPERAND, operand)
                store64(run + 8 * AWAITED, peer)
                return PENDING
        operand += 1
    piece = load64(run + 8 * PIECE_NBYTES)
    nbytes = min(load64(row + 8 * NBYTES) - k * piece, piece)
    bases = load64(run + 8 * BASES)
    where = 0
    line = load64(row + 8 * LINE)
    ndst = load64(row + 8 * NDST)
    pushable = 0  # where other ranks may write in this rank's output
    if load64(run + 8 * ALIASED) == 0:
        pushable = max(load64(run + 8 * OFFERED_DST), 0)
    if nbytes > 0 and ndst > 0:
        sources = load64(run + 8 * ADDRESSES)
        targets = sources + 8 * nsrc
        streams = targets + 8 * ndst
        pulls = False
        skip = False
        for j in range(nsrc):
            entry = operands + 64 * j
            options = load64(entry + 8 * OPTIONS)
            address = 0
            if options != 0:
                peer = load64(entry + 8 * PEER)
                if options & PUSHED and pushable > 0:
                    skip = True  # its maker has stored it where it belongs
                elif options & RESOLVE:
                    place = load64(
                        load64(segments + 8 * peer) + load64(entry + 8 * WAIT_LINE) + line_shift
                        + 16
                    )  # fmt: skip
                    if place > 0:
                        address = load64(load64(channel + 8 * HEAPS) + 8 * peer) + place
                    elif place < 0:
                        address = place
                        pulls = True
            if address == 0:
                address = (
                    load64(bases + 8 * load64(entry + 8 * BASE)) + load64(entry + 8 * OFFSET)
                    + k * load64(entry + 8 * PIECE_STRIDE) + slot * load64(entry + 8 * DEPTH_STRIDE)
                )  # fmt: skip
            store64(sources + 8 * j, address)
        if not skip:
            found = 0
            streamed = 0
            pushed = 0
            past = nbytes >= load64(channel + 8 * STREAM_FROM)
            for j in range(ndst):
                entry = operands + 64 * (nsrc + j)
                options = load64(entry + 8 * OPTIONS)
                if options & PUSH:
                    peer = load64(entry + 8 * PEER)
                    place = load64(
                        load64(segments + 8 * peer) + load64(entry + 8 * WAIT_LINE) + line_shift
                        + 24
                    )  # fmt: skip
                    if place == 0:
                        continue
                    pushed += 1
                    others = True
                    address = (
                        load64(load64(channel + 8 * HEAPS) + 8 * peer) + place
                        + load64(entry + 8 * OFFSET) + k * piece
                    )  # fmt: skip
                elif options & STAGE:
                    others = True
                    base = load64(entry + 8 * PEER)
                    if base >= 0:
                        offered = load64(run + 8 * (OFFERED_SRC + base))
                        if offered > 0:
                            where = offered + load64(entry + 8 * WAIT_LINE) + k * piece
                        elif offered < 0:
                            where = offered - load64(entry + 8 * WAIT_LINE) - k * piece
                    if where != 0 or pushed == load64(entry + 8 * READERS):
                        continue
                    address = (
                        load64(bases + 8 * load64(entry + 8 * BASE)) + load64(entry + 8 * OFFSET)
                        + slot * load64(entry + 8 * DEPTH_STRIDE)
                    )  # fmt: skip
                else:
                    others = False
                    address = (
                        load64(bases + 8 * load64(entry + 8 * BASE)) + load64(entry + 8 * OFFSET)
                        + k * load64(entry + 8 * PIECE_STRIDE)
                    )  # fmt: skip
                if others and past:
                    store64(streams + 8 * streamed, address)
                    streamed += 1
                else:
                    store64(targets + 8 * found, address)
                    found += 1
            if found + streamed > 0:
                if pulls:
                    if not _combine_pulled(
                        run, channel, row, operands, sources, nsrc, targets, found, streams,
                        streamed, nbytes,
                    ):  # fmt: skip
                        return UNREADABLE
                else:
                    _combine(
                        run, channel, sources, nsrc, targets, found, streams, streamed, nbytes
                    )  # fmt: skip
            if streamed > 0:
                stores_done()
    if line >= 0:
        rank = load64(channel + 8 * RANK)
        address = load64(segments + 8 * rank) + line + line_shift
        store64(address + 8, mark)
        if load64(row + 8 * EXTRA) != 0:  # not inline
            store64(address + 16, where)
            store64(address + 24, pushable)
        store_release(address, tick)
        if load64(load64(channel + 8 * SLEEPERS)) > 0:
            _wake(channel)
    return DONE


@njit(nogil=True)
def _check(run: int, channel: int, tick: int, slice_ns: int) -> int:
    """Wait until all ranks are done with what lies in the lines and slots of a tick."""
    need = tick - load64(channel + 8 * DEPTH_MASK) - 1
    if load64(channel + 8 * KNOWN) >= need:
        return DONE
    segments = load64(channel + 8 * SEGMENTS)
    rank = load64(channel + 8 * RANK)
    least = tick + (1 << 40)
    for peer in range(load64(channel + 8 * SIZE)):
        if peer != rank:
            address = load64(segments + 8 * peer) + DONE_AT
            done = load_acquire(address)
            if done < need:
                if not _wait(channel, address, need, slice_ns):
                    store64(run + 8 * AWAITED, peer)
                    return PENDING
                done = load_acquire(address)
            least = min(least, done)
    store64(channel + 8 * KNOWN, least)
    return DONE


@njit(nogil=True)
def _divide(run: int, row: int, k: int) -> None:
    """Divide one piece of a result."""
    operands = load64(run + 8 * OPERANDS) + 64 * load64(row + 8 * FIRST)
    piece = load64(run + 8 * PIECE_NBYTES)
    nbytes = min(load64(row + 8 * NBYTES) - k * piece, piece)
    if nbytes <= 0:
        return
    bases = load64(run + 8 * BASES)
    table = load64(run + 8 * ADDRESSES)
    target = (
        load64(bases + 8 * load64(operands + 8 * BASE)) + load64(operands + 8 * OFFSET)
        + k * load64(operands + 8 * PIECE_STRIDE)
    )  # fmt: skip
    store64(table, target)
    divisor = load64(row + 8 * EXTRA)
    function = FOLD_FUNCTION if divisor == 1 else DIVIDE_FUNCTION
    _call_kernel(load64(run + 8 * function), target, table, divisor, nbytes)


@njit(nogil=True)
def advance_shared(run: int, slice_ns: int) -> int:
    """Carry out rows until the end, or a wait that lasts longer than `slice_ns`."""
    channel = load64(run + 8 * CHANNEL)
    if load64(channel + 8 * SERVED) != load64(run + 8 * TURN):
        return PENDING  # runs of a communicator go one after the other
    rows = load64(run + 8 * ROWS)
    count = load64(run + 8 * ROW_COUNT)
    pieces = load64(run + 8 * PIECES)
    skew = load64(run + 8 * SKEW)
    first_tick = load64(run + 8 * FIRST_TICK)
    iteration = load64(run + 8 * ITERATION)
    i = load64(run + 8 * ROW)
    operand = load64(run + 8 * OPERAND)
    segments = load64(channel + 8 * SEGMENTS)
    mine = load64(segments + 8 * load64(channel + 8 * RANK))
    while iteration < pieces + skew:
        while i < count:
            row = rows + 64 * i
            k = iteration - load64(row + 8 * ROW_SKEW)
            if 0 <= k < pieces:
                kind = load64(row + 8 * OP)
                code = DONE
                if kind == CHECK:
                    code = _check(run, channel, first_tick + k, slice_ns)
                elif kind == DIVIDE:
                    _divide(run, row, k)
                elif kind == WHOLE:
                    if k == 0:
                        entry = load64(run + 8 * OPERANDS) + 64 * load64(row + 8 * FIRST)
                        bases = load64(run + 8 * BASES)
                        memcpy(
                            load64(bases + 8 * load64(entry + 64 + 8 * BASE))
                            + load64(entry + 64 + 8 * OFFSET),
                            load64(bases + 8 * load64(entry + 8 * BASE))
                            + load64(entry + 8 * OFFSET),
                            load64(row + 8 * NBYTES),
                        )
                else:
                    code = _carry_out(run, channel, row, k, first_tick + k, operand, slice_ns)
                    operand = 0
                if code != DONE:
                    store64(run + 8 * ITERATION, iteration)
                    store64(run + 8 * ROW, i)
                    return code
                store64(run + 8 * OPERAND, 0)
            i += 1
        i = 0
        iteration += 1
        if iteration > skew:
            store_release(mine + DONE_AT, first_tick + iteration - skew - 1)
            if load64(load64(channel + 8 * SLEEPERS)) > 0:
                _wake(channel)
    # Those who read this rank's arrays without a copy, and aren't heard from afterwards.
    store64(run + 8 * ITERATION, iteration)
    acks = load64(run + 8 * ACKS)
    while i < load64(run + 8 * ACK_COUNT):
        peer = load64(acks + 16 * i)
        if load64(run + 8 * (OFFERED_SRC + load64(acks + 16 * i + 8))) != 0:
            address = load64(segments + 8 * peer) + DONE_AT
            last = first_tick + pieces - 1
            if load_acquire(address) < last and not _wait(channel, address, last, slice_ns):
                store64(run + 8 * AWAITED, peer)
                store64(run + 8 * ROW, i)
                return PENDING
        i += 1
    if load64(run + 8 * HEARS_ALL) != 0 and load64(channel + 8 * KNOWN) < first_tick - 1:
        store64(channel + 8 * KNOWN, first_tick - 1)
    store64(channel + 8 * SERVED, load64(run + 8 * TURN) + 1)
    store64(run + 8 * ROW, count)
    return DONE
