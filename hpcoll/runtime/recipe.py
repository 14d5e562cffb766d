"""A recipe: a lowered schedule of one rank, as a table of int64 rows that an engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpcoll.runtime.layout import CACHE_LINE_NBYTES

SRC, DST, SCRATCH = range(3)
IMMEDIATE = -1
"""Base of an operand that is a value, not an address."""

OP, NSRC, NDST, FIRST, NBYTES, PEER, LANE, EXTRA = range(8)
"""Columns of a row; EXTRA is the divisor or the native function."""

MOVE, FOLD, DIVIDE, SEND, RECV, WAIT, NATIVE = range(7)
"""Kinds of rows."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A lowered schedule of one rank.

    Attributes
    ----------
    rows : ndarray of int64, shape (n, 8)
        See the column names.
    operands : ndarray of int64, shape (m, 2)
        (base, offset) each: base is SRC, DST, SCRATCH or IMMEDIATE.
    steps : ndarray of int64, shape (n,)
        The schedule's step that each row belongs to.
    scratch_nbytes : int
        Scratch memory, in bytes.
    requests : int
        Most messages in flight at once.
    input_copied : bool
        Whether the input is copied first, because in place it would be destroyed.
    keep : tuple
        Arrays whose addresses are in the rows.
    """

    rows: NDArray[np.int64]
    operands: NDArray[np.int64]
    steps: NDArray[np.int64]
    scratch_nbytes: int
    requests: int
    input_copied: bool = False
    keep: tuple[NDArray[Any], ...] = ()


Region: TypeAlias = "tuple[int, int, int]"
"""A piece of memory: base, offset and size in bytes."""


class RowWriter:
    """Collects rows, operands and scratch."""

    def __init__(self) -> None:
        # Flat lists: a row is eight numbers, an operand two.
        self._rows: list[int] = []
        self._operands: list[int] = []
        self._steps: list[int] = []
        self.step = 0
        self.requests = self._posted = 0
        self.scratch = self._scratch_peak = 0
        self.keep: list[NDArray[Any]] = []

    def reserve(self, nbytes: int) -> Region:
        """Scratch memory for the whole run."""
        at = self.scratch
        self.scratch = at - (-nbytes // CACHE_LINE_NBYTES) * CACHE_LINE_NBYTES
        if self.scratch > self._scratch_peak:
            self._scratch_peak = self.scratch
        return SCRATCH, at, nbytes

    def release_to(self, mark: int) -> None:
        """Give back the scratch reserved since it was `mark`."""
        self.scratch = mark

    def combine(self, sources: Sequence[Region], target: Region) -> None:
        """Copy one region, or fold several, into another."""
        if target[2] == 0 or (len(sources) == 1 and sources[0] == target):
            return
        kind = MOVE if len(sources) == 1 else FOLD
        self._row(kind, sources, target)

    def complete(self, region: Region, divisor: int, lone: bool) -> None:
        """Divide every element of a result, or fold it by itself, as `lower` was told."""
        if divisor > 1 and region[2]:
            self._row(DIVIDE, (region,), region, divisor)
        if lone and region[2]:
            self._row(FOLD, (region,), region)

    def send(self, region: Region, peer: int, lane: int, limit: int) -> None:
        """Post a send, in pieces of at most `limit` bytes."""
        for base, offset, nbytes in (region,) if region[2] <= limit else _pieces(region, limit):
            self._rows += (SEND, 1, 0, len(self._operands) // 2, nbytes, peer, lane, 0)
            self._operands += (base, offset)
            self._steps.append(self.step)
            self._posted += 1

    def recv(self, region: Region, peer: int, lane: int, limit: int) -> None:
        """Post a receive, in pieces of at most `limit` bytes."""
        for base, offset, nbytes in (region,) if region[2] <= limit else _pieces(region, limit):
            self._rows += (RECV, 0, 1, len(self._operands) // 2, nbytes, peer, lane, 0)
            self._operands += (base, offset)
            self._steps.append(self.step)
            self._posted += 1

    def exchange(self, into: Region, source: int, outgoing: Region, target: int) -> None:
        """Receive from one rank while sending to another; as `recv`, `send` and `wait`."""
        at = len(self._operands) // 2
        self._rows += (
            *(RECV, 0, 1, at, into[2], source, 0, 0),
            *(SEND, 1, 0, at + 1, outgoing[2], target, 0, 0),
            *(WAIT, 0, 0, at + 2, 0, 0, 0, 0),
        )
        self._operands += (into[0], into[1], outgoing[0], outgoing[1])
        self._steps += (self.step, self.step, self.step)
        if self.requests < 2:
            self.requests = 2

    def native(self, function: int, arguments: Sequence[tuple[int, int]]) -> None:
        """Post a native collective: address of its function, (base, offset) arguments."""
        first = len(self._operands) // 2
        self._rows += (NATIVE, len(arguments), 0, first, 0, 0, 0, function)
        self._steps.append(self.step)
        for argument in arguments:
            self._operands += argument
        self._posted += 1

    def wait(self) -> None:
        """Wait for all that was posted."""
        if self._posted:
            self._rows += (WAIT, 0, 0, len(self._operands) // 2, 0, 0, 0, 0)
            self._steps.append(self.step)
            self.requests = max(self.requests, self._posted)
            self._posted = 0

    def finish(self, *, input_copied: bool = False) -> Recipe:
        """The recipe."""
        return Recipe(
            np.array(self._rows, dtype=np.int64).reshape(-1, 8),
            np.array(self._operands, dtype=np.int64).reshape(-1, 2),
            np.array(self._steps, dtype=np.int64),
            self._scratch_peak,
            self.requests,
            input_copied,
            tuple(self.keep),
        )

    def _row(self, kind: int, sources: Sequence[Region], target: Region, extra: int = 0) -> None:
        operands = self._operands
        self._rows += (kind, len(sources), 1, len(operands) // 2, target[2], 0, 0, extra)
        for source in sources:
            operands += source[:2]
        operands += target[:2]
        self._steps.append(self.step)


def _pieces(region: Region, limit: int) -> list[Region]:
    base, offset, nbytes = region
    return [(base, offset + at, min(limit, nbytes - at)) for at in range(0, nbytes, limit)]
