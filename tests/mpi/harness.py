"""A call of a collective, what NumPy says it gives, and a check of all that it touches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from memory import POISON, Field, assert_same, poison
from mpi4py import MPI

from hpcoll import Communicator
from hpcoll.kernels import reference
from hpcoll.kernels.dtypes import DTYPES
from hpcoll.schedule import Algorithm, registry
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS
from hpcoll.schedule.ops import Op, resolve_op
from hpcoll.selection import unfit

SIZE: int = MPI.COMM_WORLD.size
NAMES = (*COLLECTIVES, *VECTOR_FORMS)
WHOLE = ("allreduce", "reduce", "scan", "exscan", "broadcast")
MODES = ("blocking", "started", "plan")
LAYOUTS = ("C", "F", "strided", "reversed", "column")
RUNS = {"blocking": 3, "started": 1, "plan": 3}
"""How often a call is made, with other data each time: the second may take another path,
and the last blocking one is made on other arrays."""


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes
    ----------
    name : str
        Collective or v-form.
    algorithm : str or None
        Pinned algorithm.
    rows : int
        Rows of `x`, or of each rank's part.
    rest : tuple of int
        Shape of a row.
    counts : tuple
        For v-forms: rows of each rank; for alltoallv a matrix.
    layout, out_layout : str
        How input and output lie in memory.
    shared : bool
        Whether they lie on the rank's shared heap; with odd seeds the output alone does.
    """

    name: str
    algorithm: str | None = None
    rows: int = 1
    rest: tuple[int, ...] = ()
    dtype: str = "float64"
    op: str | Op = "sum"
    root: int = 0
    counts: tuple[Any, ...] = ()
    mode: str = "blocking"
    in_place: bool = False
    layout: str = "C"
    out_layout: str = "C"
    seed: int = 0
    told: bool = True
    shared: bool = False

    @property
    def base(self) -> str:
        """The collective without its v."""
        return VECTOR_FORMS.get(self.name, self.name)


def serving(name: str, op: str | Op = "sum", dtype: str = "float64") -> list[str]:
    """The algorithms that can serve a collective from every root, with more than one tuning."""
    base = VECTOR_FORMS.get(name, name)
    kind = COLLECTIVES[base]
    operator = resolve_op(op) if kind.reduces else None

    def fit(algorithm: Algorithm) -> bool:
        roots = range(SIZE) if kind.rooted else (0,)
        reasons = (unfit(algorithm, SIZE, dtype=dtype, op=operator, root=r) for r in roots)
        return not any(reasons)

    found = []
    for algorithm in registry.algorithms(base):
        tuned = [algorithm.tuned(**{k: v + 1}) for k, v in algorithm.tunables]
        found += [a.asked for a in (algorithm, *tuned) if fit(a)]
    return found


def some_counts(rows: int, size: int, seed: int) -> tuple[int, ...]:
    """Unequal counts from 0 to `rows`, one of them 0."""
    counts = np.random.default_rng([seed, rows]).integers(0, rows + 1, size)
    counts[seed % size] = 0
    return tuple(int(c) for c in counts)


def some_matrix(rows: int, size: int, seed: int, symmetric: bool) -> tuple[tuple[int, ...], ...]:
    """Rows from each rank to each other; one rank's row and column may be empty."""
    matrix = np.random.default_rng([seed, rows, 1]).integers(0, rows + 1, (size, size))
    if size > 2:
        matrix[seed % size] = matrix[:, seed % size] = 0
    if symmetric:
        matrix = np.maximum(matrix, matrix.T)
    return tuple(tuple(int(c) for c in row) for row in matrix)


def values(shape: tuple[int, ...], dtype: np.dtype[Any], rank: int, case: Case) -> Any:
    """Input of a rank: told apart by rank and position, and exact under the operator."""
    i = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
    i = i + 17 * case.seed
    if case.op == "prod":
        wide = 1 + (i + rank) % 3
    elif dtype.name in ("float16", "bfloat16"):
        wide = (i * 5 + rank * 3) % 13 - 3
    elif dtype.kind == "b":
        wide = (i * (rank + 3) + rank) % 3 == 0
    else:
        wide = i + rank * (1 << 17) - (1 << 16)  # sums of 8 fit the 24 bits of float32
    with np.errstate(all="ignore"):
        array = wide.astype(dtype)
        return array + np.asarray(1j * (i % 5), dtype) if dtype.kind == "c" else array


def shape_of(case: Case, rank: int, size: int) -> tuple[int, ...]:
    """Shape of a rank's input."""
    if case.base in WHOLE:
        rows = case.rows
    elif case.base in ("allgather", "gather"):
        rows = case.counts[rank] if case.counts else case.rows
    elif case.name == "alltoallv":
        rows = sum(case.counts[rank])
    else:
        rows = sum(case.counts) if case.counts else case.rows * size
    return (rows, *case.rest)


def expected(case: Case, xs: list[Any], rank: int) -> Any:
    """What a rank gets; None where it gets nothing."""
    size = len(xs)

    def fold(operands: list[Any]) -> Any:
        op = resolve_op(case.op)
        total = reference.fold(op, operands)
        return reference.divide(total, len(operands)) if op.name == "avg" else total

    def parts(x: Any, counts: tuple[int, ...] = ()) -> list[Any]:
        rows = counts or (len(x) // size,) * size
        return np.split(x, np.cumsum(rows)[:-1])

    if case.base in ("reduce", "gather") and rank != case.root:
        return None
    match case.base:
        case "allreduce" | "reduce":
            return fold(xs)
        case "scan":
            return fold(xs[: rank + 1])
        case "exscan":
            return fold(xs[:rank]) if rank else None
        case "broadcast":
            return xs[case.root]
        case "allgather" | "gather":
            return np.concatenate(xs) if case.counts else np.stack(xs)
        case "scatter":
            return parts(xs[case.root], case.counts)[rank]
        case "reduce_scatter":
            return parts(fold(xs), case.counts)[rank]
        case "alltoall":
            rows = case.counts if case.name == "alltoallv" else [()] * size
            return np.concatenate([parts(x, c)[rank] for x, c in zip(xs, rows, strict=True)])
    return None


class Arrays:
    """Input and output of one rank, in place or apart."""

    def __init__(self, comm: Communicator, case: Case, xs: list[Any]) -> None:
        rank = comm.rank
        self.case, self.rank = case, rank
        make = {"make": comm.empty} if case.shared else {}
        private = case.shared and not case.in_place and case.seed % 2
        dtype = xs[rank].dtype
        want = expected(case, xs, rank)
        self.input: Field | None = None
        self.output: Field | None = None
        self.start = self.end = 0
        if case.base == "exscan":
            want = xs[rank]
        if not case.in_place or want is None:
            own = {} if private else make
            self.input = Field(xs[rank].shape, dtype, case.layout, **own)
            self.x = self.input.view
            if want is not None:
                self.output = Field(want.shape, dtype, case.out_layout, **make)
            self.out = None if self.output is None else self.output.view
            return
        first = rank * case.rows
        if case.counts and case.base != "alltoall":
            first = sum(case.counts[:rank])
        if case.base in ("allgather", "gather"):
            self.output = Field(want.shape, dtype, **make)
            self.out = self.output.view
            self.x = self.out[first : first + case.counts[rank]] if case.counts else self.out[rank]
        elif case.base in ("reduce_scatter", "scatter"):
            self.input = Field(xs[rank].shape, dtype, **make)
            self.x = self.input.view
            self.start, self.end = first, first + len(want)
            self.out = self.x[self.start : self.end]
        else:
            self.output = Field(want.shape, dtype, case.out_layout, **make)
            self.x = self.out = self.output.view

    def load(self, x: Any) -> None:
        """Poison the output and write the input."""
        if self.output is not None:
            poison(self.output.view)
        self.x[...] = x

    def check(self, x: Any, want: Any, got: Any, where: str) -> None:
        """Look at everything that the call may have touched."""
        if want is None:
            assert got is None or got is self.out, f"{where}: got {got!r}"
        else:
            assert got is self.out, f"{where}: the result is not out"
            assert_same(got, want, where)
        if self.case.base == "exscan" and self.rank == 0 and self.output is not None:
            kept = x if self.case.in_place else None
            if kept is None:
                raw = np.ascontiguousarray(self.output.view).view(np.uint8)
                assert np.all(raw == POISON[0]), f"{where}: rank 0 of exscan wrote to out"
            else:
                assert_same(self.output.view, kept, f"{where} (rank 0 of exscan)")
        if self.input is not None:
            before = x.copy()
            if self.end > self.start:
                before[self.start : self.end] = want
            assert_same(self.input.view, before, f"{where} (the input after the call)")
            self.input.check(f"{where} (input)")
        if self.output is not None:
            self.output.check(f"{where} (output)")

    def check_untouched(self, x: Any, where: str) -> None:
        """Nothing has changed since `load`."""
        assert_same(self.x, x, where)
        if self.output is not None and self.input is not None:
            raw = np.ascontiguousarray(self.output.view).view(np.uint8)
            assert np.all(raw == POISON[0]), f"{where}: written to"


def options_of(case: Case, rank: int) -> dict[str, Any]:
    """Keyword arguments of the call."""
    kind, options = COLLECTIVES[case.base], {"algorithm": case.algorithm}
    if kind.reduces:
        options["op"] = case.op
    if kind.rooted:
        options["root"] = case.root
    if case.name == "alltoallv":
        options["send_counts"] = case.counts[rank]
        if case.told:
            options["recv_counts"] = tuple(row[rank] for row in case.counts)
    elif case.counts and (case.told or case.base not in ("allgather", "gather")):
        options["counts"] = case.counts
    return options


def check(comm: Communicator, case: Case) -> None:
    """Make a call and compare everything with NumPy."""
    rank, size = comm.rank, comm.size
    where = f"rank {rank}/{size} {case}"
    if case.base == "barrier":
        plan = comm.plan("barrier", algorithm=case.algorithm)
        for _ in range(3):
            assert plan() is None
        assert comm.barrier(algorithm=case.algorithm) is None
        assert comm.ibarrier(algorithm=case.algorithm).wait() is None
        return
    dtype = DTYPES[case.dtype]

    def inputs(run: int) -> list[Any]:
        shapes = [shape_of(case, r, size) for r in range(size)]
        changed = replace(case, seed=case.seed + run)
        return [values(s, dtype, r, changed) for r, s in enumerate(shapes)]

    xs = inputs(0)
    arrays = Arrays(comm, case, xs)
    options = options_of(case, rank)
    if case.mode == "plan":
        if "send_counts" in options:
            options["counts"] = options.pop("send_counts")
        arrays.load(xs[rank])
        plan = comm.plan(case.name, arrays.x, arrays.out, **options)
    none_needed = case.base in ("broadcast", "scatter") and rank != case.root and case.seed % 2
    for run in range(RUNS[case.mode]):
        xs = inputs(run)
        left = None
        if case.mode == "blocking" and run == RUNS["blocking"] - 1:
            left, arrays = arrays, Arrays(comm, case, xs)
            left.load(xs[rank])
        arrays.load(xs[rank])
        if case.mode == "blocking":
            x = None if none_needed and arrays.x is not arrays.out else arrays.x
            got = getattr(comm, case.name)(x, out=arrays.out, **options)
        elif case.mode == "started":
            got = getattr(comm, f"i{case.name}")(arrays.x, out=arrays.out, **options).wait()
        else:
            got = plan.start().wait() if run == 1 else plan()
        arrays.check(xs[rank], expected(case, xs, rank), got, f"{where} run {run}")
        if left is not None:
            left.check_untouched(xs[rank], f"{where} (arrays of the call before)")
