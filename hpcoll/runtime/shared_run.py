"""A recipe over shared memory, bound to a rank's arrays and to the segments of all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.kernels import cpu
from hpcoll.runtime import words
from hpcoll.runtime.recipe import SCRATCH
from hpcoll.runtime.run import Run, aligned
from hpcoll.runtime.shared_recipe import (
    COMBINE,
    DIVIDE,
    EXTRA,
    NBYTES,
    NDST,
    NSRC,
    OP,
    SharedRecipe,
)
from hpcoll.runtime.transport import Channel
from hpcoll.runtime.ways import STATE_WORDS
from hpcoll.schedule.ops import Op

BRIEF_NBYTES = 64 << 10
"""Runs that touch no more memory in all their rows are over before another thread of
Python could use the interpreter."""


class SharedRun(Run):
    """One recipe with its tables and scratch; in flight at most once at a time.

    Parameters
    ----------
    recipe : SharedRecipe
        What to run.
    channel : Channel
        Its segments.
    signature : int
        64 bits that tell this call from others.
    op, dtype : Op or None, numpy.dtype
        The reduction.
    bases : ndarray of int64
        Where the ranks' segments are mapped.
    spins : bool
        Whether a rank that waits has a core to spare.
    """

    __slots__ = ("_ways",)

    def __init__(
        self,
        recipe: SharedRecipe,
        channel: Channel,
        signature: int,
        op: Op | None,
        dtype: np.dtype[Any],
        *,
        bases: NDArray[np.int64],
        spins: bool,
    ) -> None:
        self.recipe = recipe
        self.channel = channel
        self.op = op
        self.dtype = dtype
        rows = recipe.rows
        self._scratch = aligned(recipe.scratch_nbytes)
        self.bases = np.concatenate([np.zeros(3, np.int64), bases])
        self.bases[SCRATCH] = self._scratch.ctypes.data
        most = int((rows[:, NSRC] + 2 * rows[:, NDST]).max(initial=0))
        self._addresses = np.zeros(2 * most + 2, np.int64)
        table = self.table = np.zeros(words.RUN_WORDS, np.int64)
        table[words.CHANNEL] = channel.table.ctypes.data
        table[words.ROWS] = rows.ctypes.data
        table[words.ROW_COUNT] = len(rows)
        table[words.OPERANDS] = recipe.operands.ctypes.data
        table[words.BASES] = self.bases.ctypes.data
        table[words.ADDRESSES] = self._addresses.ctypes.data
        table[words.SIGNATURE] = signature
        table[words.SHARED] = 1
        table[words.PIECES] = recipe.pieces
        table[words.SKEW] = recipe.skew
        table[words.PIECE_NBYTES] = recipe.piece_nbytes
        table[words.BLOCK_NBYTES] = recipe.block_nbytes
        table[words.ACKS] = recipe.acks.ctypes.data
        table[words.ACK_COUNT] = len(recipe.acks)
        table[words.HEARS_ALL] = recipe.hears_all
        # One state a row, and one for the call as a whole.
        self._ways = np.zeros((len(rows) + 1, STATE_WORDS), np.int64)
        table[words.WAYS] = self._ways.ctypes.data
        table[words.OFFERS_MEMORY] = recipe.offers_memory
        divides = rows[:, OP] == DIVIDE
        folds = (rows[:, OP] == COMBINE) & (rows[:, NSRC] > 1)
        if op is not None and (folds.any() or (divides & (rows[:, EXTRA] == 1)).any()):
            table[words.FOLD_FUNCTION] = cpu.fold_address(op, dtype)
        if (divides & (rows[:, EXTRA] > 1)).any():
            table[words.DIVIDE_FUNCTION] = cpu.divide_address(dtype)
        brief = recipe.pieces == 1 and rows[:, NBYTES].sum() <= BRIEF_NBYTES
        table[words.BRIEF] = brief and spins
        self.address = int(table.ctypes.data)
        self.word = table.item

    @property
    def position(self) -> int:
        """How far the run has come; it grows."""
        return self.word(words.ITERATION) * (len(self.recipe.rows) + 1) + self.word(words.ROW)

    def waits_for(self) -> list[int]:
        """The ranks whose publications the run waits for."""
        awaited = self.word(words.AWAITED)
        return [awaited] if awaited >= 0 else []
