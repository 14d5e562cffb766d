"""A recipe bound to memory: what an engine carries out, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.kernels import cpu
from hpcoll.runtime import words
from hpcoll.runtime.layout import CACHE_LINE_NBYTES
from hpcoll.runtime.recipe import (
    DIVIDE,
    DST,
    FOLD,
    NSRC,
    OP,
    PEER,
    RECV,
    SCRATCH,
    SEND,
    SRC,
    WAIT,
    Recipe,
)
from hpcoll.runtime.transport import Channel
from hpcoll.schedule.ops import Op


class Run:
    """One recipe with its tables and scratch; in flight at most once at a time.

    Parameters
    ----------
    recipe : Recipe
        What to run.
    channel : Channel
        Over what.
    signature : int
        64 bits that tell this call from others.
    op, dtype : Op or None, numpy.dtype
        The reduction.

    Attributes
    ----------
    bases : ndarray of int64
        Addresses of input, output and scratch.
    table : ndarray of int64
        The run's words.
    """

    __slots__ = (
        "_addresses",
        "_requests",
        "_scratch",
        "address",
        "bases",
        "channel",
        "dtype",
        "op",
        "recipe",
        "table",
        "word",
    )

    def __init__(
        self,
        recipe: Recipe,
        channel: Channel,
        signature: int,
        op: Op | None,
        dtype: np.dtype[Any],
    ) -> None:
        self.recipe: Any = recipe
        self.channel = channel
        self.op = op
        self.dtype = dtype
        channel.reserve(recipe.requests)
        width = int(channel.table[words.REQUEST_NBYTES])
        self._scratch = aligned(recipe.scratch_nbytes)
        self.bases = np.zeros(3, np.int64)
        self.bases[SCRATCH] = self._scratch.ctypes.data
        self._requests = np.zeros(recipe.requests * width // 8 + 1, np.int64)
        most = int(recipe.rows[:, NSRC].max(initial=0))
        self._addresses = np.zeros(max(16, most + 2), np.int64)
        table = self.table = np.zeros(words.RUN_WORDS, np.int64)
        table[words.CHANNEL] = channel.table.ctypes.data
        table[words.ROWS] = recipe.rows.ctypes.data
        table[words.ROW_COUNT] = len(recipe.rows)
        table[words.OPERANDS] = recipe.operands.ctypes.data
        table[words.BASES] = self.bases.ctypes.data
        table[words.REQUESTS] = self._requests.ctypes.data
        table[words.ADDRESSES] = self._addresses.ctypes.data
        table[words.SIGNATURE] = signature
        kinds = set(recipe.rows[:, OP].tolist())
        if FOLD in kinds and op is not None:
            table[words.FOLD_FUNCTION] = cpu.fold_address(op, dtype)
        if DIVIDE in kinds:
            table[words.DIVIDE_FUNCTION] = cpu.divide_address(dtype)
        self.address = int(table.ctypes.data)
        self.word: Callable[[int], int] = table.item

    def bind(self, source: int, target: int) -> None:
        """Set the addresses of input and output."""
        self.bases[SRC] = source
        self.bases[DST] = target

    @property
    def position(self) -> int:
        """How far the run has come; it grows."""
        return self.word(words.ROW)

    @property
    def step(self) -> int:
        """The schedule's step that the run stands in."""
        row = min(self.word(words.ROW), len(self.recipe.steps) - 1)
        return int(self.recipe.steps[row]) if row >= 0 else 0

    def waits_for(self) -> list[int]:
        """The ranks whose messages the run waits for."""
        rows = self.recipe.rows
        at = self.word(words.ROW)
        if at >= len(rows) or rows[at, OP] != WAIT:
            return []
        start = max((i for i in range(at) if rows[i, OP] == WAIT), default=-1)
        posted = [i for i in range(start + 1, at) if rows[i, OP] in (SEND, RECV)]
        width = int(self.channel.table[words.REQUEST_NBYTES])
        base = int(self._requests.ctypes.data)
        unfinished = self.channel.pending([base + k * width for k in range(len(posted))])
        waiting = [i for i, open_ in zip(posted, unfinished, strict=True) if open_]
        receives = [i for i in waiting if rows[i, OP] == RECV]
        return sorted({int(rows[i, PEER]) for i in receives or waiting})


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised bytes that begin on a cache line."""
    room = np.empty(nbytes + CACHE_LINE_NBYTES, np.uint8)
    skip = -room.ctypes.data % CACHE_LINE_NBYTES
    return room[skip : skip + nbytes]
