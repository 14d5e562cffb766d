"""The compiled interpreter of rows over shared memory.

Every rank publishes in its own segment and reads in those of others. A publication
has a line of 64 bytes: the tick it was made at, the call's mark (its number and its
signature in one word), and then either its payload or where that lies. Each piece of
each call has a tick of its own, the same on all ranks; a line, and a slot, is used again
`depth` ticks later, once all ranks are done with what was there.
"""

from __future__ import annotations

from numba import njit

from hpcoll.kernels.intrinsics import (
    cycles,
    fence,
    load64,
    load_acquire,
    make_call_void,
    memcpy,
    store64,
    store_release,
    stores_done,
    usleep,
)
from hpcoll.runtime.blocks import block_at, take_blocks
from hpcoll.runtime.segments import DONE_AT
from hpcoll.runtime.shared_combine import combine, combine_pulled
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
    SLOT,
    STAGE,
    TELLS,
    WAIT_LINE,
    WHOLE,
)
from hpcoll.runtime.shared_waiting import wait, wake
from hpcoll.runtime.ways import (
    MEASURE,
    OFFER,
    STATE_WORDS,
    STREAM_OWN,
    STREAM_SHARED,
    choose_way,
    learn_way,
)
from hpcoll.runtime.words import (
    ACK_COUNT,
    ACKS,
    ADDRESSES,
    ALIASED,
    AWAITED,
    BASES,
    BEGAN,
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
    PENDING,
    PIECE_NBYTES,
    PIECES,
    PLACE,
    PUSHABLE,
    RANK,
    ROW,
    ROW_COUNT,
    ROWS,
    SEGMENTS,
    SERVED,
    SIGNATURE,
    SIZE,
    SKEW,
    SLEEPERS,
    TICKS,
    TURN,
    TURNS,
    UNREADABLE,
    WAY,
    WAYS,
)

THERE, PRIVATE, STORED = range(3)
"""A row's operands can all be read as they are, or some are private memory of others, or
their maker has stored the value where it belongs."""

PER_CALL = 1024
"""What a whole call costs counts as if it were a KiB."""

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
    take_blocks(run)
    offers = 0
    if load64(run + 8 * OFFERS_MEMORY) != 0:
        state = load64(run + 8 * WAYS) + 8 * STATE_WORDS * load64(run + 8 * ROW_COUNT)
        offers = choose_way(state, OFFER)
        store64(run + 8 * WAY, offers)
        store64(run + 8 * BEGAN, cycles())
    heap, end = load64(channel + 8 * HEAP_BEGIN), load64(channel + 8 * HEAP_END)
    bases = load64(run + 8 * BASES)
    for k in range(2):
        address = load64(bases + 8 * k)
        offered = 0
        if heap <= address < end:
            offered = address - heap
        elif offers & OFFER != 0:
            offered = -address
        store64(run + 8 * (OFFERED_SRC + k), offered)
    pushable = 0  # where other ranks may write in this rank's output
    if load64(run + 8 * ALIASED) == 0:
        pushable = max(load64(run + 8 * OFFERED_DST), 0)
    store64(run + 8 * PUSHABLE, pushable)


@njit(nogil=True)
def _operands_there(run: int, channel: int, row: int, tick: int, slice_ns: int) -> bool:
    """Wait until the peers have published what a row reads."""
    line_shift = (tick & load64(channel + 8 * DEPTH_MASK)) * load64(channel + 8 * LINE_STRIDE)
    segments = load64(channel + 8 * SEGMENTS)
    mark = load64(run + 8 * MARK)
    operand = load64(run + 8 * OPERAND)
    nsrc = load64(row + 8 * NSRC)
    entry = load64(run + 8 * OPERANDS) + 64 * (load64(row + 8 * FIRST) + operand)
    while operand < nsrc:
        line = load64(entry + 8 * WAIT_LINE)
        if line >= 0:
            peer = load64(entry + 8 * PEER)
            address = load64(segments + 8 * peer) + line + line_shift
            there = load_acquire(address) >= tick or wait(channel, address, tick, slice_ns)
            if not there or load64(address + 8) != mark:
                if there and slice_ns > 0:
                    # The peer is in another call: the ranks will find out by their letters.
                    usleep(1000)
                store64(run + 8 * OPERAND, operand)
                store64(run + 8 * AWAITED, peer)
                return False
        entry += 64
        operand += 1
    return True


@njit(nogil=True)
def _find_sources(run: int, channel: int, row: int, k: int, tick: int) -> int:
    """Put the addresses of a row's operands in the table; what there is to do with them."""
    slot = tick & load64(channel + 8 * DEPTH_MASK)
    line_shift = slot * load64(channel + 8 * LINE_STRIDE)
    segments = load64(channel + 8 * SEGMENTS)
    bases = load64(run + 8 * BASES)
    entry = load64(run + 8 * OPERANDS) + 64 * load64(row + 8 * FIRST)
    sources = load64(run + 8 * ADDRESSES)
    found = THERE
    for j in range(load64(row + 8 * NSRC)):
        options = load64(entry + 8 * OPTIONS)
        address = 0
        if options != 0:
            peer = load64(entry + 8 * PEER)
            if options & PUSHED and load64(run + 8 * PUSHABLE) > 0:
                return STORED
            if options & RESOLVE:
                line = load64(segments + 8 * peer) + load64(entry + 8 * WAIT_LINE) + line_shift
                place = load64(line + 16)
                if place > 0:
                    address = load64(load64(channel + 8 * HEAPS) + 8 * peer) + place
                elif place < 0:
                    address = place
                    found = PRIVATE
        if address == 0:
            address = (
                load64(bases + 8 * load64(entry + 8 * BASE)) + load64(entry + 8 * OFFSET)
                + k * load64(entry + 8 * PIECE_STRIDE) + slot * load64(entry + 8 * DEPTH_STRIDE)
            )  # fmt: skip
            if options & SLOT:
                address += block_at(run, k, tick)
        store64(sources + 8 * j, address)
        entry += 64
    return found


@njit(nogil=True)
def _make_value(
    run: int, channel: int, row: int, k: int, tick: int, nbytes: int, found: int
) -> bool:
    """Combine a row's operands where its value belongs; false if they can't be read."""
    slot = tick & load64(channel + 8 * DEPTH_MASK)
    line_shift = slot * load64(channel + 8 * LINE_STRIDE)
    segments = load64(channel + 8 * SEGMENTS)
    bases = load64(run + 8 * BASES)
    piece = load64(run + 8 * PIECE_NBYTES)
    nsrc = load64(row + 8 * NSRC)
    ndst = load64(row + 8 * NDST)
    entry = load64(run + 8 * OPERANDS) + 64 * (load64(row + 8 * FIRST) + nsrc)
    sources = load64(run + 8 * ADDRESSES)
    targets = sources + 8 * nsrc
    streams = targets + 8 * ndst
    allowed = load64(row + 8 * EXTRA) & (STREAM_SHARED | STREAM_OWN)
    way = state = 0
    if allowed != 0:
        state = load64(run + 8 * WAYS) + 8 * STATE_WORDS * ((row - load64(run + 8 * ROWS)) >> 6)
        way = choose_way(state, allowed)
    stored = streamed = pushed = 0
    for _ in range(ndst):
        options = load64(entry + 8 * OPTIONS)
        past = way & STREAM_SHARED
        if options & PUSH:
            peer = load64(entry + 8 * PEER)
            line = load64(segments + 8 * peer) + load64(entry + 8 * WAIT_LINE) + line_shift
            place = load64(line + 24)
            address = 0
            if place != 0:
                pushed += 1
                address = (
                    load64(load64(channel + 8 * HEAPS) + 8 * peer) + place
                    + load64(entry + 8 * OFFSET) + k * piece
                )  # fmt: skip
        elif options & STAGE:
            base = load64(entry + 8 * PEER)
            where = 0
            if base >= 0:
                offered = load64(run + 8 * (OFFERED_SRC + base))
                if offered > 0:
                    where = offered + load64(entry + 8 * WAIT_LINE) + k * piece
                elif offered < 0:
                    where = offered - load64(entry + 8 * WAIT_LINE) - k * piece
            store64(run + 8 * PLACE, where)
            address = 0
            if where == 0 and pushed != load64(entry + 8 * READERS):
                address = (
                    load64(bases + 8 * load64(entry + 8 * BASE)) + load64(entry + 8 * OFFSET)
                    + slot * load64(entry + 8 * DEPTH_STRIDE)
                )  # fmt: skip
                if options & SLOT:
                    address += block_at(run, k, tick)
        else:
            past = way & STREAM_OWN
            address = (
                load64(bases + 8 * load64(entry + 8 * BASE)) + load64(entry + 8 * OFFSET)
                + k * load64(entry + 8 * PIECE_STRIDE)
            )  # fmt: skip
        if address != 0:
            if past:
                store64(streams + 8 * streamed, address)
                streamed += 1
            else:
                store64(targets + 8 * stored, address)
                stored += 1
        entry += 64
    if stored + streamed == 0:
        return True
    began = 0
    if way & MEASURE:
        began = cycles()
    if found == PRIVATE:
        if not combine_pulled(
            run, channel, row, sources, nsrc, targets, stored, streams, streamed, nbytes
        ):
            return False
    else:
        combine(run, channel, sources, nsrc, targets, stored, streams, streamed, nbytes)
    if way & MEASURE:
        fence()
        learn_way(state, way, cycles() - began, nbytes)
    elif streamed > 0:
        stores_done()
    return True


@njit(nogil=True)
def _carry_out(run: int, channel: int, row: int, k: int, tick: int, slice_ns: int) -> int:
    """One row of one piece: wait for its operands, combine them, publish."""
    if not _operands_there(run, channel, row, tick, slice_ns):
        return PENDING
    piece = load64(run + 8 * PIECE_NBYTES)
    nbytes = min(load64(row + 8 * NBYTES) - k * piece, piece)
    store64(run + 8 * PLACE, 0)
    if nbytes > 0 and load64(row + 8 * NDST) > 0:
        found = _find_sources(run, channel, row, k, tick)
        if found != STORED and not _make_value(run, channel, row, k, tick, nbytes, found):
            return UNREADABLE
    line = load64(row + 8 * LINE)
    if line >= 0:
        mine = load64(load64(channel + 8 * SEGMENTS) + 8 * load64(channel + 8 * RANK))
        slot = tick & load64(channel + 8 * DEPTH_MASK)
        line += mine + slot * load64(channel + 8 * LINE_STRIDE)
        store64(line + 8, load64(run + 8 * MARK))
        if load64(row + 8 * EXTRA) & TELLS:
            store64(line + 16, load64(run + 8 * PLACE))
            store64(line + 24, load64(run + 8 * PUSHABLE))
        store_release(line, tick)
        if load64(load64(channel + 8 * SLEEPERS)) > 0:
            wake(channel)
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
                if not wait(channel, address, need, slice_ns):
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
                    code = _carry_out(run, channel, row, k, first_tick + k, slice_ns)
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
                wake(channel)
    # Those who read this rank's arrays without a copy, and aren't heard from afterwards.
    store64(run + 8 * ITERATION, iteration)
    acks = load64(run + 8 * ACKS)
    while i < load64(run + 8 * ACK_COUNT):
        peer = load64(acks + 16 * i)
        if load64(run + 8 * (OFFERED_SRC + load64(acks + 16 * i + 8))) != 0:
            address = load64(segments + 8 * peer) + DONE_AT
            last = first_tick + pieces - 1
            if load_acquire(address) < last and not wait(channel, address, last, slice_ns):
                store64(run + 8 * AWAITED, peer)
                store64(run + 8 * ROW, i)
                return PENDING
        i += 1
    if load64(run + 8 * HEARS_ALL) != 0 and load64(channel + 8 * KNOWN) < first_tick - 1:
        store64(channel + 8 * KNOWN, first_tick - 1)
    way = load64(run + 8 * WAY)
    if way & MEASURE:
        state = load64(run + 8 * WAYS) + 8 * STATE_WORDS * count
        learn_way(state, way, cycles() - load64(run + 8 * BEGAN), PER_CALL)
        store64(run + 8 * WAY, 0)
    store64(channel + 8 * SERVED, load64(run + 8 * TURN) + 1)
    store64(run + 8 * ROW, count)
    return DONE
