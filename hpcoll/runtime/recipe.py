"""A recipe: a lowered schedule of one rank, as a table of int64 rows that an engine runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of memory: an operand with its size."""

    base: int
    offset: int
    nbytes: int


class RowWriter:
    """Collects rows, operands and scratch."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.operands: list[tuple[int, int]] = []
        self.steps: list[int] = []
        self.step = 0
        self.requests = self._posted = 0
        self.scratch = self._scratch_peak = 0
        self.keep: list[NDArray[Any]] = []

    def reserve(self, nbytes: int) -> Region:
        """Scratch memory for the whole run."""
        at = self.scratch
        self.scratch += -(-nbytes // CACHE_LINE_NBYTES) * CACHE_LINE_NBYTES
        self._scratch_peak = max(self._scratch_peak, self.scratch)
        return Region(SCRATCH, at, nbytes)

    def release_to(self, mark: int) -> None:
        """Give back the scratch reserved since it was `mark`."""
        self.scratch = mark

    def combine(self, sources: Sequence[Region], target: Region) -> None:
        """Copy one region, or fold several, into another."""
        if target.nbytes == 0 or (len(sources) == 1 and sources[0] == target):
            return
        kind = MOVE if len(sources) == 1 else FOLD
        self._row(kind, sources, (target,), target.nbytes)

    def complete(self, region: Region, divisor: int, lone: bool) -> None:
        """Divide every element of a result, or fold it by itself, as `lower` was told."""
        if divisor > 1 and region.nbytes:
            self._row(DIVIDE, (region,), (region,), region.nbytes, extra=divisor)
        if lone and region.nbytes:
            self._row(FOLD, (region,), (region,), region.nbytes)

    def send(self, region: Region, peer: int, lane: int, limit: int) -> None:
        """Post a send, in pieces of at most `limit` bytes."""
        for piece in _pieces(region, limit):
            self._row(SEND, (piece,), (), piece.nbytes, peer, lane)
            self._posted += 1

    def recv(self, region: Region, peer: int, lane: int, limit: int) -> None:
        """Post a receive, in pieces of at most `limit` bytes."""
        for piece in _pieces(region, limit):
            self._row(RECV, (), (piece,), piece.nbytes, peer, lane)
            self._posted += 1

    def native(self, function: int, arguments: Sequence[tuple[int, int]]) -> None:
        """Post a native collective: address of its function, (base, offset) arguments."""
        self.rows.append((NATIVE, len(arguments), 0, len(self.operands), 0, 0, 0, function))
        self.steps.append(self.step)
        self.operands.extend(arguments)
        self._posted += 1

    def wait(self) -> None:
        """Wait for all that was posted."""
        if self._posted:
            self._row(WAIT, (), (), 0)
            self.requests = max(self.requests, self._posted)
            self._posted = 0

    def finish(self, *, input_copied: bool = False) -> Recipe:
        """The recipe."""
        return Recipe(
            np.array(self.rows, dtype=np.int64).reshape(-1, 8),
            np.array(self.operands, dtype=np.int64).reshape(-1, 2),
            np.array(self.steps, dtype=np.int64),
            self._scratch_peak,
            self.requests,
            input_copied,
            tuple(self.keep),
        )

    def _row(
        self,
        kind: int,
        sources: Sequence[Region],
        targets: Sequence[Region],
        nbytes: int,
        peer: int = 0,
        lane: int = 0,
        extra: int = 0,
    ) -> None:
        first = len(self.operands)
        self.operands.extend((r.base, r.offset) for r in (*sources, *targets))
        self.rows.append((kind, len(sources), len(targets), first, nbytes, peer, lane, extra))
        self.steps.append(self.step)


def _pieces(region: Region, limit: int) -> Iterator[Region]:
    at = 0
    while True:
        nbytes = min(region.nbytes - at, limit)
        yield Region(region.base, region.offset + at, nbytes)
        at += nbytes
        if at >= region.nbytes:
            return
