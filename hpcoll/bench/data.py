"""Inputs whose every element tells rank and position, and the results they must give.

Values are small integers, so that sums are exact in every dtype and in any order: a
result is right or wrong, never nearly right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcoll.kernels import reference
from hpcoll.kernels.dtypes import HALVES
from hpcoll.runtime.arrays import Array
from hpcoll.runtime.layout import message_nbytes
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS
from hpcoll.schedule.ops import Op

GUARD = 64
"""Elements after an output that must stay as they were."""

VARIANTS = 2
"""Different inputs that calls alternate between."""


@dataclass(frozen=True, slots=True)
class Case:
    """One message size of one collective.

    Attributes
    ----------
    name, base : str
        The collective, and without a v.
    size, rank, root : int
        As seen by this rank.
    rows : tuple of int or tuple of tuple
        Elements of each rank, or alltoall's matrix.
    dtype, op : numpy.dtype, Op or None
        Element type, reduction.
    """

    name: str
    base: str
    size: int
    rank: int
    root: int
    rows: tuple[Any, ...]
    dtype: np.dtype[Any]
    op: Op | None

    @property
    def nbytes(self) -> int:
        """Message size as nccl-tests counts it."""
        return message_nbytes(self.base, self.rows, self.dtype.itemsize)

    @property
    def count(self) -> int:
        """Elements of the input of one rank."""
        return self._input_count(self.rank)

    def _input_count(self, rank: int) -> int:
        if self.base in ("allgather", "gather"):
            return int(self.rows[rank])
        if self.base == "alltoall":
            return int(sum(self.rows[rank]))
        return int(sum(self.rows))

    def output_count(self) -> int:
        """Elements of this rank's output."""
        if self.base in ("reduce_scatter", "scatter"):
            return int(self.rows[self.rank])
        if self.base == "alltoall":
            return int(sum(row[self.rank] for row in self.rows))
        if self.base in ("reduce", "gather") and self.rank != self.root:
            return 0
        return int(sum(self.rows))

    def input(self, rank: int, variant: int) -> Array:
        """What a rank contributes."""
        n = self._input_count(rank)
        rng = np.random.default_rng([variant, rank, 20])
        limit = self._limit()
        if self.op is not None and self.op.name == "prod":
            steps = np.array([1, -1, 1, 2] if self.dtype not in HALVES else [1, -1, 1, 1])
            if self.dtype.kind in "bu":
                steps = np.array([1, 0, 1, 1] if self.dtype.kind == "b" else [1, 3, 1, 2])
            chosen: Array = steps[rng.integers(0, 4, n, np.uint8)].astype(self.dtype)
            return chosen
        kind = np.uint8 if limit <= 256 else np.uint16
        return rng.integers(0, limit, n, kind).astype(self.dtype)

    def _limit(self) -> int:
        """One more than the largest value: sums over all ranks stay exact."""
        if self.dtype.kind == "b" or (self.op is not None and self.op.name.startswith("l")):
            return 2
        if self.op is None or self.op.name not in ("sum", "avg"):
            return 251 if self.dtype not in HALVES else 127
        if self.dtype in HALVES:
            return max(2, 256 // self.size)
        return 251

    def expected(self, variant: int) -> Array:
        """What this rank's output must hold."""
        me, counts = self.rank, self.rows
        if self.base == "alltoall":
            parts = []
            for source in range(self.size):
                at = sum(counts[source][:me])
                parts.append(self.input(source, variant)[at : at + counts[source][me]])
            return np.concatenate(parts) if parts else np.empty(0, self.dtype)
        start = sum(counts[:me])
        if self.base in ("allgather", "gather"):
            if self.output_count() == 0:
                return np.empty(0, self.dtype)
            return np.concatenate([self.input(r, variant) for r in range(self.size)])
        if self.base == "scatter":
            return self.input(self.root, variant)[start : start + counts[me]]
        if self.base == "broadcast":
            return self.input(self.root, variant)
        if self.op is None or self.output_count() == 0:
            return np.empty(0, self.dtype)
        last = {"scan": me + 1, "exscan": me}.get(self.base, self.size)
        if last == 0:
            return np.empty(0, self.dtype)
        total = self.input(0, variant)
        for rank in range(1, last):
            total = reference.fold(self.op, [total, self.input(rank, variant)])
        if self.op.name == "avg":
            total = reference.divide(total, last)
        if self.base == "reduce_scatter":
            return total[start : start + counts[me]]
        return total


def make_case(
    name: str, nbytes: int, size: int, rank: int, root: int, dtype: np.dtype[Any], op: Op | None
) -> Case:
    """A case of about `nbytes`: where ranks share the message, whole elements for each.

    The v-forms get unequal counts: ranks 0, 1, 2, ... have 3, 2, 1, 3, ... shares.
    """
    base = VECTOR_FORMS.get(name, name)
    elements = nbytes // dtype.itemsize
    kind = COLLECTIVES[base]
    rows: tuple[Any, ...] = (elements,)
    if kind.name == "barrier":
        rows = (0,)
    elif kind.owned or base == "alltoall":
        each = max(1, elements // size) if elements else 0
        shares = [3 - r % 3 for r in range(size)] if name != base else [1] * size
        whole = sum(shares)
        share = [each * size * s // whole for s in shares] if name != base else [each] * size
        rows = tuple(share)
        if base == "alltoall":
            rows = tuple(tuple(share[(s + d) % size] for d in range(size)) for s in range(size))
    return Case(name, base, size, rank, root if kind.rooted else 0, rows, dtype, op)
