"""The MPI library's blocking collective, called through mpi4py and by a compiled caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from hpcoll.bench.data import Case
from hpcoll.errors import TransportError
from hpcoll.kernels.compile import compiling
from hpcoll.kernels.dtypes import dtype_name
from hpcoll.kernels.intrinsics import load64
from hpcoll.runtime.arrays import Array, address_of
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.engine import call_table, entry_point
from hpcoll.runtime.layout import layout_of
from hpcoll.runtime.native import native_mpi_names
from hpcoll.runtime.recipe import EXTRA, FIRST, IMMEDIATE, NATIVE, NSRC, OP, SRC
from hpcoll.schedule import registry


@njit(nogil=True, cache=True)
def _call(table: int) -> int:
    """Call the function at word 0 with as many arguments as word 1 says."""
    return call_table(load64(table), table + 16, load64(table + 8))


class CompiledCaller:
    """Calls a blocking MPI collective without Python in between.

    Parameters
    ----------
    lowered : NativeCollectives
        What knows the library's functions.
    case : Case
        What to call.
    source, target : ndarray
        Its arrays.
    in_place : bool
        Whether they are the same.
    """

    def __init__(
        self, lowered: Any, case: Case, source: Array, target: Array, *, in_place: bool
    ) -> None:
        problem = registry.find("native", case.base).problem(case.rank, case.size, root=case.root)
        layout = layout_of(problem, case.rows, 1, case.dtype.itemsize)
        recipe = lowered.lower(
            problem, layout, dtype=dtype_name(case.dtype), itemsize=case.dtype.itemsize,
            op=case.op, aliased=in_place, divisor=0, blocking=True,
        )  # fmt: skip
        row = next(r for r in recipe.rows if r[OP] == NATIVE)
        bases = {SRC: address_of(source), 1: address_of(target)}
        self._spare = np.empty(max(1, layout.src_nbytes + layout.dst_nbytes), np.uint8)
        values = []
        for base, offset in recipe.operands[row[FIRST] : row[FIRST] + row[NSRC]]:
            at = bases.get(int(base), int(self._spare.ctypes.data))
            values.append(int(offset) if base == IMMEDIATE else at + int(offset))
        self._keep = (recipe, source, target)
        self._table = np.array([row[EXTRA], len(values), *values], np.int64)
        with compiling("bench-versus", CompiledCaller.__init__):
            entry = entry_point(_call, 1)
        self._run: Callable[[int], int] = entry
        self._address = int(self._table.ctypes.data)

    def __call__(self) -> None:
        """Call it once."""
        code = self._run(self._address)
        if code:
            raise TransportError(f"the native collective failed: MPI error {code}")


def mpi4py_caller(
    comm: Any, case: Case, source: Array, target: Array, *, in_place: bool
) -> Callable[[], Any]:
    """The collective as a user of mpi4py calls it, with buffers described beforehand."""
    module = mpi()
    names = native_mpi_names(dtype_name(case.dtype), case.op)
    if names is None:
        kind, scale, op = module.BYTE, case.dtype.itemsize, None
    else:
        kind, scale = getattr(module, names[0]), 1
        op = getattr(module, names[1]) if names[1] else None
    give: Any = [source, kind] if source.size or not in_place else None
    take: Any = [target, kind] if target.size else None
    here = module.IN_PLACE
    me, root, base = case.rank, case.root, case.base
    match base:
        case "allreduce" | "scan" | "exscan":
            function = getattr(comm, base.capitalize())
            return partial(function, here if in_place else give, take, op)
        case "reduce":
            mine = here if in_place and me == root else give
            return partial(comm.Reduce, mine, take if me == root else None, op, root)
        case "broadcast":
            return partial(comm.Bcast, give if me == root and not in_place else take, root)
        case "reduce_scatter":
            return partial(comm.Reduce_scatter, give, take, list(case.rows), op)
        case "barrier":
            return comm.Barrier
    if base == "alltoall":
        out = [n * scale for n in case.rows[me]]
        back = [case.rows[s][me] * scale for s in range(case.size)]
        even = case.name == base
        if even:
            return partial(comm.Alltoall, [source, kind], [target, kind])
        return partial(
            comm.Alltoallv, [source, out, _starts(out), kind], [target, back, _starts(back), kind]
        )
    shares = [n * scale for n in case.rows]
    vector = [shares, _starts(shares), kind]
    even = case.name == base
    match base:
        case "allgather":
            mine = here if in_place else give
            if even:
                return partial(comm.Allgather, mine, take)
            return partial(comm.Allgatherv, mine, [target, *vector])
        case "gather":
            mine = here if in_place and me == root else give
            if even:
                return partial(comm.Gather, mine, take if me == root else None, root)
            return partial(comm.Gatherv, mine, [target, *vector] if me == root else None, root)
        case _:
            mine = here if in_place and me == root else take
            if even:
                return partial(comm.Scatter, give if me == root else None, mine, root)
            return partial(comm.Scatterv, [source, *vector] if me == root else None, mine, root)


def _starts(counts: list[int]) -> list[int]:
    return [sum(counts[:i]) for i in range(len(counts))]
