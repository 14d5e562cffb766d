"""The words of the engine's tables, and its codes: what Python and compiled code share."""

from __future__ import annotations

# Words of a channel's table: what all runs of a communicator share.
(
    USABLE,
    CALLS,
    HISTORY,
    HISTORY_MASK,
    SEND_FUNCTION,
    RECV_FUNCTION,
    TEST_FUNCTION,
    DATATYPE,
    COMM,
    REQUEST_NBYTES,
    CALL_MASK,
    SIGNATURE_SHIFT,
    SIGNATURE_MASK,
    CALL_SHIFT,
    SPINS,
    YIELDS,
    STATUSES,
    # What ranks that share memory need besides.
    RANK,
    SIZE,
    SEGMENTS,
    HEAPS,
    PIDS,
    HEAP_BEGIN,
    HEAP_END,
    DEPTH_MASK,
    LINE_STRIDE,
    TICKS,
    KNOWN,
    TURNS,
    SERVED,
    SLEEPERS,
    PAUSES,
    SHARED_YIELDS,
    BOUNCE,
    RING_POSITION,
) = range(35)
CHANNEL_WORDS = 35

# Words of a run's table.
(
    CHANNEL,
    ROWS,
    ROW_COUNT,
    OPERANDS,
    BASES,
    REQUESTS,
    ADDRESSES,
    FOLD_FUNCTION,
    DIVIDE_FUNCTION,
    SIGNATURE,
    ROW,
    POSTED,
    TAG,
    CALL,
    FLAG,
    # What a run over shared memory needs besides.
    SHARED,
    PIECES,
    SKEW,
    PIECE_NBYTES,
    ACKS,
    ACK_COUNT,
    HEARS_ALL,
    ALIASED,
    OFFERS_MEMORY,
    TURN,
    FIRST_TICK,
    ITERATION,
    OPERAND,
    OFFERED_SRC,
    OFFERED_DST,
    AWAITED,
    MARK,
    PUSHABLE,
    PLACE,
    WAYS,
    WAY,
    BEGAN,
    BLOCK_NBYTES,
    RING_FROM,
    BRIEF,
    # What binding arrays needs.
    SOURCE_NBYTES,
    TARGET_NBYTES,
    SHIFT,
) = range(43)
RUN_WORDS = 43

DONE, PENDING = 0, 1
BOUND = 2
"""Arrays are bound, and the run is still to be carried out."""
UNUSABLE = -1
UNREADABLE = -2
"""Another process's private memory couldn't be read."""
UNFIT = -3
"""The arrays don't fit the run; nothing was done."""
MPI_ERROR = -1000
"""Codes at or below it are ``MPI_ERROR - code of the library``."""

SLICE_NS = 50_000_000
"""The engine comes back to Python at least this often, so that signals are served."""

BRIEFLY = -1
"""In place of a slice: spin for a while, and don't sleep."""
