"""The compiled engine: an interpreter of recipe rows, without Python between them.

It works on tables of int64 alone. Messages go through function pointers that the
transport gives as values, so the interpreter names no transport and is cached on
disk. A run can be left at any wait and taken up again: its state is in its own table.
"""

from __future__ import annotations

from typing import Any

from numba import int64, njit

from hpcoll.kernels.intrinsics import (
    load64,
    make_call,
    make_call_void,
    memcpy,
    now_ns,
    pause,
    sched_yield,
    store64,
    usleep,
)
from hpcoll.runtime.binding import bind_arrays
from hpcoll.runtime.recipe import (
    DIVIDE,
    EXTRA,
    FIRST,
    FOLD,
    IMMEDIATE,
    LANE,
    MOVE,
    NATIVE,
    NBYTES,
    NSRC,
    OP,
    PEER,
    SEND,
    WAIT,
)
from hpcoll.runtime.shared_engine import advance_shared, begin_shared
from hpcoll.runtime.words import (
    ADDRESSES,
    BASES,
    BOUND,
    BRIEF,
    BRIEFLY,
    CALL,
    CALL_MASK,
    CALL_SHIFT,
    CALLS,
    CHANNEL,
    COMM,
    DATATYPE,
    DIVIDE_FUNCTION,
    DONE,
    FLAG,
    FOLD_FUNCTION,
    HISTORY,
    HISTORY_MASK,
    MPI_ERROR,
    OPERANDS,
    PENDING,
    POSTED,
    RECV_FUNCTION,
    REQUEST_NBYTES,
    REQUESTS,
    ROW,
    ROW_COUNT,
    ROWS,
    SEND_FUNCTION,
    SHARED,
    SIGNATURE,
    SIGNATURE_MASK,
    SIGNATURE_SHIFT,
    SLICE_NS,
    SPINS,
    STATUSES,
    TAG,
    TEST_FUNCTION,
    UNFIT,
    UNUSABLE,
    USABLE,
    YIELDS,
)

_POLLS_A_LOOK = 16

_call1 = make_call(1)
_call2 = make_call(2)
_call4 = make_call(4)
_call5 = make_call(5)
_call6 = make_call(6)
_call7 = make_call(7)
_call8 = make_call(8)
_call9 = make_call(9)
_call10 = make_call(10)
_fold = make_call_void(4)


@njit(nogil=True, cache=True)
def begin(run: int) -> None:
    """Take the next call number and stand before the first row."""
    channel = load64(run + 8 * CHANNEL)
    call = load64(channel + 8 * CALLS) + 1
    signature = load64(run + 8 * SIGNATURE)
    store64(channel + 8 * CALLS, call)
    slot = call & load64(channel + 8 * HISTORY_MASK)
    store64(load64(channel + 8 * HISTORY) + 8 * slot, signature)
    tag = (call & load64(channel + 8 * CALL_MASK)) << load64(channel + 8 * CALL_SHIFT)
    short = signature & load64(channel + 8 * SIGNATURE_MASK)
    tag |= short << load64(channel + 8 * SIGNATURE_SHIFT)
    store64(run + 8 * TAG, tag)
    store64(run + 8 * CALL, call)
    store64(run + 8 * ROW, 0)
    store64(run + 8 * POSTED, 0)
    if load64(run + 8 * SHARED) != 0:
        begin_shared(run)


@njit(nogil=True)
def _operand(operands: int, bases: int, index: int) -> int:
    """An operand's address, or its value."""
    base = load64(operands + 16 * index)
    value = load64(operands + 16 * index + 8)
    if base == IMMEDIATE:
        return value
    return load64(bases + 8 * base) + value


@njit(nogil=True)
def _wait(run: int, channel: int, posted: int, slice_ns: int) -> int:
    """Poll until all messages are through or the time is up."""
    test = load64(channel + 8 * TEST_FUNCTION)
    flag = run + 8 * FLAG
    requests = load64(run + 8 * REQUESTS)
    statuses = load64(channel + 8 * STATUSES)
    spins = load64(channel + 8 * SPINS)
    yields = spins + load64(channel + 8 * YIELDS)
    start = 0
    polls = 0
    while True:
        code = _call4(test, posted, requests, flag, statuses)
        if code != 0:
            return MPI_ERROR - code
        if load64(flag) & 0xFFFFFFFF:
            return DONE
        if slice_ns == 0:
            return PENDING
        polls += 1
        if polls > spins:
            if polls > yields:
                usleep(20)
            else:
                sched_yield()
        else:
            pause()
        if polls % _POLLS_A_LOOK == 0:
            now = now_ns()
            if start == 0:
                start = now
            elif now - start > slice_ns:
                return PENDING


@njit(nogil=True)
def call_table(function: int, a: int, count: int) -> int:
    """Call a C function with `count` arguments from a table of int64."""
    if count == 1:
        return _call1(function, load64(a))
    if count == 2:
        return _call2(function, load64(a), load64(a + 8))
    if count == 5:
        return _call5(
            function, load64(a), load64(a + 8), load64(a + 16), load64(a + 24), load64(a + 32)
        )  # fmt: skip
    if count == 6:
        return _call6(
            function, load64(a), load64(a + 8), load64(a + 16), load64(a + 24), load64(a + 32),
            load64(a + 40),
        )  # fmt: skip
    if count == 7:
        return _call7(
            function, load64(a), load64(a + 8), load64(a + 16), load64(a + 24), load64(a + 32),
            load64(a + 40), load64(a + 48),
        )  # fmt: skip
    if count == 8:
        return _call8(
            function, load64(a), load64(a + 8), load64(a + 16), load64(a + 24), load64(a + 32),
            load64(a + 40), load64(a + 48), load64(a + 56),
        )  # fmt: skip
    if count == 9:
        return _call9(
            function, load64(a), load64(a + 8), load64(a + 16), load64(a + 24), load64(a + 32),
            load64(a + 40), load64(a + 48), load64(a + 56), load64(a + 64),
        )  # fmt: skip
    return _call10(
        function, load64(a), load64(a + 8), load64(a + 16), load64(a + 24), load64(a + 32),
        load64(a + 40), load64(a + 48), load64(a + 56), load64(a + 64), load64(a + 72),
    )  # fmt: skip


@njit(nogil=True)
def _native(run: int, row: int, operands: int, bases: int, request: int) -> int:
    """Post a native collective: its arguments and last a request."""
    count = load64(row + 8 * NSRC)
    first = load64(row + 8 * FIRST)
    table = load64(run + 8 * ADDRESSES)
    for k in range(count):
        store64(table + 8 * k, _operand(operands, bases, first + k))
    store64(table + 8 * count, request)
    return call_table(load64(row + 8 * EXTRA), table, count + 1)


@njit(nogil=True, cache=True)
def advance(run: int, slice_ns: int) -> int:
    """Carry out rows until the end, a wait that lasts longer than `slice_ns`, or an error."""
    channel = load64(run + 8 * CHANNEL)
    if load64(channel + 8 * USABLE) == 0:
        return UNUSABLE
    if load64(run + 8 * SHARED) != 0:
        return advance_shared(run, slice_ns)
    rows = load64(run + 8 * ROWS)
    last = load64(run + 8 * ROW_COUNT)
    operands = load64(run + 8 * OPERANDS)
    bases = load64(run + 8 * BASES)
    requests = load64(run + 8 * REQUESTS)
    tag = load64(run + 8 * TAG)
    posted = load64(run + 8 * POSTED)
    i = load64(run + 8 * ROW)
    while i < last:
        row = rows + 64 * i
        kind = load64(row + 8 * OP)
        first = load64(row + 8 * FIRST)
        if kind == WAIT:
            code = _wait(run, channel, posted, slice_ns)
            if code != DONE:
                store64(run + 8 * ROW, i)
                store64(run + 8 * POSTED, posted)
                return code
            posted = 0
        elif kind == MOVE:
            source = _operand(operands, bases, first)
            target = _operand(operands, bases, first + 1)
            if source != target:
                memcpy(target, source, load64(row + 8 * NBYTES))
        elif kind == FOLD:
            count = load64(row + 8 * NSRC)
            table = load64(run + 8 * ADDRESSES)
            for k in range(count):
                store64(table + 8 * k, _operand(operands, bases, first + k))
            target = _operand(operands, bases, first + count)
            _fold(load64(run + 8 * FOLD_FUNCTION), target, table, count, load64(row + 8 * NBYTES))
        elif kind == DIVIDE:
            table = load64(run + 8 * ADDRESSES)
            target = _operand(operands, bases, first)
            store64(table, target)
            _fold(
                load64(run + 8 * DIVIDE_FUNCTION), target, table, load64(row + 8 * EXTRA),
                load64(row + 8 * NBYTES),
            )  # fmt: skip
        else:
            request = requests + posted * load64(channel + 8 * REQUEST_NBYTES)
            if kind == NATIVE:
                code = _native(run, row, operands, bases, request)
            else:
                function = SEND_FUNCTION if kind == SEND else RECV_FUNCTION
                code = _call7(
                    load64(channel + 8 * function),
                    _operand(operands, bases, first),
                    load64(row + 8 * NBYTES),
                    load64(channel + 8 * DATATYPE),
                    load64(row + 8 * PEER),
                    tag | load64(row + 8 * LANE),
                    load64(channel + 8 * COMM),
                    request,
                )
            if code != 0:
                store64(run + 8 * ROW, i)
                store64(run + 8 * POSTED, posted)
                return MPI_ERROR - code
            posted += 1
        i += 1
    store64(run + 8 * ROW, i)
    store64(run + 8 * POSTED, 0)
    return DONE


@njit(nogil=True, cache=True)
def execute(run: int) -> int:
    """Begin a run and carry it out, or as much of it as one slice of time allows."""
    if load64(load64(run + 8 * CHANNEL) + 8 * USABLE) == 0:
        return UNUSABLE
    begin(run)
    return advance(run, SLICE_NS)


@njit(cache=True)
def execute_briefly(run: int, x: int, out: int) -> int:
    """Bind two array objects, if any, and carry a brief run out, or begin it.

    The interpreter's lock is held: letting go of it takes as long as a small message.
    """
    if (x != 0 or out != 0) and not bind_arrays(run, x, out):
        return UNFIT
    if load64(run + 8 * BRIEF) == 0:
        return BOUND
    if load64(load64(run + 8 * CHANNEL) + 8 * USABLE) == 0:
        return UNUSABLE
    begin(run)
    return advance_shared(run, BRIEFLY)


def entry_point(function: Any, arguments: int) -> Any:
    """Compile for int64 arguments; return the cheapest way to call it from Python."""
    kinds = (int64,) * arguments
    function.compile(kinds)
    return function.overloads[kinds].entry_point
