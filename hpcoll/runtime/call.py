"""From what a user passed to a call: counts, arrays and result of each collective.

Shapes are NumPy's: allgather and gather stack, their v-forms concatenate along axis
0; reduce_scatter, alltoall and scatter split axis 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hpcoll.errors import BufferMismatch, ConfigError
from hpcoll.kernels.dtypes import check_supported, identity
from hpcoll.runtime.arrays import Array, as_input, as_output
from hpcoll.runtime.layout import Counts
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS
from hpcoll.schedule.ops import Op


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's call of a collective.

    Attributes
    ----------
    collective : str
        Its base name.
    counts : tuple
        Elements, as in `layout_of`; equal on all ranks.
    dtype : numpy.dtype
        Of input and output.
    op : Op or None
        The reduction.
    root : int
        The root; 0 where there is none.
    source, target, result : ndarray or None
        Input, output, and what the user gets.
    in_place_at : int
        Elements from the start of `target` to that of `source` when the call is in place.
    """

    collective: str
    counts: Counts
    dtype: np.dtype[Any]
    op: Op | None
    root: int
    source: Array | None
    target: Array | None
    result: Array | None
    in_place_at: int = 0


def check_root(root: object, size: int) -> int:
    """Check a root's number.

    Raises
    ------
    ConfigError
        If it is no rank.
    """
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)) or not 0 <= root < size:
        raise ConfigError(f"root must be a rank from 0 to {size - 1}, not {root!r}")
    return int(root)


def check_counts(counts: object, size: int, what: str = "counts") -> tuple[int, ...]:
    """Check one count of rows for each rank.

    Raises
    ------
    ConfigError
        If there are too few or too many, or one is no count.
    """
    if isinstance(counts, (str, bytes)) or not isinstance(counts, (Sequence, np.ndarray)):
        raise ConfigError(f"{what} must be a sequence of {size} counts, not {counts!r}")
    if len(counts) != size:
        raise ConfigError(f"{what} must have one count for each of {size} ranks, not {len(counts)}")
    for value in counts:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise ConfigError(f"{what} holds {value!r}: counts are integers from 0")
    return tuple(int(v) for v in counts)


class Caller:
    """Makes calls of one rank.

    Parameters
    ----------
    rank, size : int
        Of the communicator.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def make(
        self,
        name: str,
        x: object,
        out: object,
        op: Op | None = None,
        root: int = 0,
        counts: tuple[int, ...] | None = None,
    ) -> Call:
        """Make a call of a collective or its v-form; ``counts`` are rows.

        Raises
        ------
        BufferMismatch, ConfigError
            If an argument can't be used; the message says what would be right.
        """
        base = VECTOR_FORMS.get(name, name)
        if base == "barrier":
            return Call("barrier", (0,), np.dtype(np.uint8), None, 0, None, None, None)
        if base == "scatter":
            return self._scatter(name, x, out, root, counts)
        if base == "broadcast" and self.rank != root and x is None and out is not None:
            x = out
        array = as_input(x)
        if op is not None:
            check_supported(op, array.dtype)
            if array.size % op.width:
                raise BufferMismatch(
                    f"x has {array.size} elements, not a multiple of the width {op.width} of op "
                    f"{op.name}"
                )
        if not COLLECTIVES[base].owned and base != "alltoall":
            return self._whole(base, array, out, op, root)
        if base in ("allgather", "gather"):
            return self._gather(name, base, array, out, root, counts)
        return self._split(name, base, array, out, op, counts)

    def _whole(self, base: str, x: Array, out: object, op: Op | None, root: int) -> Call:
        source: Array | None = x
        if base == "broadcast" and self.rank != root:
            source = None
        if base == "reduce" and self.rank != root:
            return Call(base, (x.size,), x.dtype, op, root, x, None, None)
        blank = base == "exscan" and self.rank == 0
        if out is not None:
            target = as_output(out, [x.shape], x.dtype, f"{base} of x with shape {x.shape}")
        else:
            target = np.empty(x.shape, x.dtype)
            if blank and op is not None:
                neutral = identity(op, x.dtype)
                if neutral is None:
                    return Call(base, (x.size,), x.dtype, op, root, source, None, None)
                target[...] = neutral
        return Call(base, (x.size,), x.dtype, op, root, source, None if blank else target, target)

    def _gather(
        self,
        name: str,
        base: str,
        x: Array,
        out: object,
        root: int,
        rows: tuple[int, ...] | None,
    ) -> Call:
        if rows is None:
            counts = (x.size,) * self.size
            shapes = [(self.size, *x.shape)]
            if x.ndim:
                shapes.append((self.size * x.shape[0], *x.shape[1:]))
        else:
            have = self.rows(x, name)
            if have != rows[self.rank]:
                raise BufferMismatch(
                    f"x has {have} rows, but counts[{self.rank}] is {rows[self.rank]}"
                )
            unit = prod(x.shape[1:])
            counts = tuple(n * unit for n in rows)
            shapes = [(sum(rows), *x.shape[1:])]
        if base == "gather" and self.rank != root:
            return Call(base, counts, x.dtype, None, root, x, None, None)
        why = f"{name} of x with shape {x.shape} from {self.size} ranks"
        target = _output(out, shapes, x.dtype, why)
        return Call(base, counts, x.dtype, None, root, x, target, target, sum(counts[: self.rank]))

    def _split(
        self,
        name: str,
        base: str,
        x: Array,
        out: object,
        op: Op | None,
        rows: tuple[int, ...] | None,
    ) -> Call:
        have = self.rows(x, name)
        rest = x.shape[1:]
        unit = prod(rest)
        if rows is None:
            rows = self._shares(have, name)
        else:
            self.check_rows(x, rows, "counts")
        if op is not None and any(n * unit % op.width for n in rows):
            raise BufferMismatch(
                f"a rank's part of x is not a multiple of the width {op.width} of op {op.name}"
            )
        if base == "alltoall":
            shapes = [x.shape]
            share = have // self.size * unit
            counts: Counts = ((share,) * self.size,) * self.size
            at = 0
        else:
            shapes = _part_shapes(rows[self.rank], rest)
            counts = tuple(n * unit for n in rows)
            at = -sum(n * unit for n in rows[: self.rank])
        why = f"{name} of x with shape {x.shape} over {self.size} ranks"
        target = _output(out, shapes, x.dtype, why)
        return Call(base, counts, x.dtype, op, 0, x, target, target, at)

    def _scatter(
        self, name: str, x: object, out: object, root: int, rows: tuple[int, ...] | None
    ) -> Call:
        if x is None and (self.rank == root or out is None):
            need = (
                "the root's x" if self.rank == root else "out, or x of the root's shape and dtype"
            )
            raise BufferMismatch(f"{name} needs {need}")
        if x is None:
            if not isinstance(out, np.ndarray):
                raise BufferMismatch(f"out must be a NumPy array, not {type(out).__name__}")
            as_input(out, "out")
            rest, dtype = out.shape[1:], out.dtype
            if rows is None:
                rows = (out.shape[0] if out.ndim else 1,) * self.size
            source = None
        else:
            array = as_input(x)
            have = self.rows(array, name)
            rest, dtype = array.shape[1:], array.dtype
            if rows is None:
                rows = self._shares(have, name)
            elif self.rank == root:
                self.check_rows(array, rows, "counts")
            source = array if self.rank == root else None
        unit = prod(rest)
        counts = tuple(n * unit for n in rows)
        shapes = _part_shapes(rows[self.rank], rest)
        why = f"{name} of {sum(rows)} rows over {self.size} ranks"
        target = _output(out, shapes, dtype, why)
        at = -sum(counts[: self.rank])
        return Call("scatter", counts, dtype, None, root, source, target, target, at)

    def alltoallv(self, x: object, out: object, matrix: tuple[tuple[int, ...], ...]) -> Call:
        """Make an alltoallv from the whole matrix of rows, ``matrix[source][target]``."""
        array = as_input(x)
        rest = array.shape[1:]
        unit = prod(rest)
        rows = sum(row[self.rank] for row in matrix)
        why = f"alltoallv that receives {rows} rows"
        target = _output(out, [(rows, *rest)], array.dtype, why)
        counts = tuple(tuple(n * unit for n in row) for row in matrix)
        return Call("alltoall", counts, array.dtype, None, 0, array, target, target)

    def _shares(self, have: int, name: str) -> tuple[int, ...]:
        """Equal shares of some rows."""
        if have % self.size:
            raise BufferMismatch(
                f"x has {have} rows, which {self.size} ranks can't share equally: "
                f"use {name}v with counts"
            )
        return (have // self.size,) * self.size

    def check_rows(self, x: Array, rows: tuple[int, ...], what: str) -> None:
        """Check that counts add up to the rows of `x`.

        Raises
        ------
        BufferMismatch
            If they don't.
        """
        if sum(rows) != x.shape[0]:
            raise BufferMismatch(f"x has {x.shape[0]} rows, but {what} add up to {sum(rows)}")

    def rows(self, x: Array, name: str) -> int:
        """The rows of an array, which must have an axis 0."""
        if x.ndim == 0:
            raise BufferMismatch(f"{name} needs an array with an axis 0, not a scalar")
        return int(x.shape[0])


def _part_shapes(rows: int, rest: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes of a rank's part of axis 0; of a single row also without that axis."""
    return [(rows, *rest), rest] if rows == 1 else [(rows, *rest)]


def _output(
    out: object, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any], why: str
) -> Array:
    """The user's output, checked, or a new one of the usual shape."""
    return np.empty(shapes[0], dtype) if out is None else as_output(out, shapes, dtype, why)
