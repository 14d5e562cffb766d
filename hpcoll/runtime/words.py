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
) = range(17)
CHANNEL_WORDS = 17

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
) = range(15)
RUN_WORDS = 15

DONE, PENDING = 0, 1
UNUSABLE = -1
MPI_ERROR = -1000
"""Codes at or below it are ``MPI_ERROR - code of the library``."""

SLICE_NS = 50_000_000
"""The engine comes back to Python at least this often, so that signals are served."""
