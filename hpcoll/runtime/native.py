"""The MPI library's own collectives, as rows of a recipe.

The non-blocking forms are used, so that a native call can be bounded, interleaved
and interrupted like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcoll.errors import RegistryError
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.layout import Layout, PairLayout
from hpcoll.runtime.recipe import DST, IMMEDIATE, SCRATCH, SRC, Recipe, RowWriter
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.ops import Op
from hpcoll.schedule.problem import Problem

INT_MAX = 2**31 - 1

_MPI_OPS = {
    "sum": "SUM", "avg": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX",
    "land": "LAND", "lor": "LOR", "lxor": "LXOR",
    "band": "BAND", "bor": "BOR", "bxor": "BXOR",
}  # fmt: skip
_BOOL_OPS = {
    "sum": "LOR", "max": "LOR", "bor": "LOR", "lor": "LOR",
    "prod": "LAND", "min": "LAND", "band": "LAND", "land": "LAND",
    "lxor": "LXOR", "bxor": "LXOR",
}  # fmt: skip
_MPI_TYPES = {
    "float32": "FLOAT", "float64": "DOUBLE", "complex64": "C_FLOAT_COMPLEX",
    "complex128": "C_DOUBLE_COMPLEX", "bool": "C_BOOL",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}_T" for kind in ("int", "uint")
       for bits in (8, 16, 32, 64)},
}  # fmt: skip


def native_refuses(collective: str, dtype: str, op: Op | None) -> str | None:
    """Why MPI's own collective can't keep hpcoll's rules for a call; None where it can."""
    if op is None or not COLLECTIVES[collective].reduces:
        return None
    if op.function is not None:
        return "user operators are not passed to MPI"
    if dtype not in _MPI_TYPES:
        return f"MPI has no reduction over {dtype}"
    if op.name in ("min", "max") and dtype.startswith("float"):
        return f"MPI's {op.name.upper()} doesn't propagate NaN"
    if op.name == "sum" and dtype in ("int8", "int16", "uint8", "uint16"):
        return f"MPI's SUM may saturate over {dtype} where it should wrap (Open MPI's does)"
    if dtype.startswith("complex") and op.name in ("land", "lor", "lxor"):
        return "MPI has no logical operators over complex"
    if dtype.startswith("float") and op.name in ("land", "lor", "lxor"):
        return "MPI has no logical operators over floating point"
    return None


def native_mpi_names(dtype: str, op: Op | None) -> tuple[str, str | None] | None:
    """MPI's names of a datatype and an operator; None where it has no such datatype."""
    if dtype not in _MPI_TYPES:
        return None
    names = _BOOL_OPS if dtype == "bool" else _MPI_OPS
    return _MPI_TYPES[dtype], names[op.name] if op is not None else None


class NativeCollectives:
    """Lowers native collectives on one communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator that they run on.
    address_of, handle_of : callable
        Address of an MPI function by name (0 where there is none), handle of an object.
    """

    def __init__(
        self, comm: Any, address_of: Callable[[str], int], handle_of: Callable[[Any], int]
    ) -> None:
        self._comm = comm
        self._handle_of = handle_of
        self._large = bool(address_of("MPI_Iallreduce_c"))
        self._address_of = address_of

    def lower(
        self,
        p: Problem,
        layout: Layout | PairLayout,
        *,
        dtype: str,
        itemsize: int,
        op: Op | None,
        aliased: bool,
        divisor: int,
        lone: bool = False,
        blocking: bool = False,
    ) -> Recipe:
        """Lower one rank's part of a native collective.

        With ``blocking=True`` the row holds the blocking function and its arguments,
        for a caller that only reads them.

        Raises
        ------
        RegistryError
            If a count exceeds 2**31 - 1 and the library has no large counts.
        """
        out = RowWriter()
        kind = COLLECTIVES[p.collective]
        # Only a reduction looks at elements; everything else moves bytes.
        names = native_mpi_names(dtype, op) if kind.reduces else None
        unit = itemsize if names else 1
        data = (IMMEDIATE, self._handle_of(getattr(mpi(), names[0] if names else "BYTE")))
        comm = (IMMEDIATE, self._handle_of(self._comm))
        copied = aliased and p.collective in ("reduce_scatter", "alltoall", "gather", "scatter")
        source = (SRC, 0)
        if copied:
            room = out.reserve(layout.src_nbytes)
            out.combine([(SRC, 0, layout.src_nbytes)], room)
            source = room[:2]
        in_place = (IMMEDIATE, int(mpi().IN_PLACE))
        target = (DST, 0)
        root = (IMMEDIATE, p.root)

        def number(nbytes: int) -> tuple[int, int]:
            value = nbytes // unit
            if not self._large and value > INT_MAX:
                raise RegistryError(
                    f"{p.collective}/native: a count of {value} exceeds 2**31 - 1, and this MPI "
                    "library has no large counts"
                )
            return IMMEDIATE, value

        def vector(values: list[int]) -> tuple[int, int]:
            wide = np.int64 if self._large else np.int32
            for v in values:
                number(v)
            array = np.array([v // unit for v in values] or [0], dtype=wide)
            out.keep.append(array)
            return IMMEDIATE, array.ctypes.data

        def call(name: str, *arguments: tuple[int, int]) -> None:
            stem = name.capitalize() if blocking else f"I{name}"
            large = "_c" if self._large and name != "barrier" else ""
            out.native(self._address_of(f"MPI_{stem}{large}"), arguments)

        def blocks() -> tuple[list[int], list[int]]:
            assert isinstance(layout, Layout)
            sizes = [sum(layout.nbytes[c] for c in p.owned(r)) for r in range(p.size)]
            return sizes, [sum(sizes[:r]) for r in range(p.size)]

        whole = layout.total if isinstance(layout, Layout) else 0
        named = names[1] if names else None
        operator = (IMMEDIATE, self._handle_of(getattr(mpi(), named)) if named else 0)
        match p.collective:
            case "allreduce" | "scan":
                send = in_place if aliased else source
                call(p.collective, send, target, number(whole), data, operator, comm)
            case "exscan":
                into = target
                if p.rank == 0:
                    into = (SCRATCH, out.reserve(whole)[1])
                send = in_place if aliased and p.rank else source
                call("exscan", send, into, number(whole), data, operator, comm)
            case "reduce":
                send = in_place if aliased and p.rank == p.root else source
                call("reduce", send, target, number(whole), data, operator, root, comm)
            case "reduce_scatter":
                sizes, _ = blocks()
                call("reduce_scatter", source, target, vector(sizes), data, operator, comm)
            case "allgather":
                sizes, starts = blocks()
                own = in_place if aliased else source
                mine = number(sizes[p.rank])
                if len(set(sizes)) == 1:
                    call("allgather", own, mine, data, target, number(sizes[0]), data, comm)
                else:
                    call("allgatherv", own, mine, data, target, vector(sizes), vector(starts),
                         data, comm)  # fmt: skip
            case "gather":
                sizes, starts = blocks()
                mine = number(sizes[p.rank])
                call("gatherv", source, mine, data, target, vector(sizes), vector(starts), data,
                     root, comm)  # fmt: skip
            case "scatter":
                sizes, starts = blocks()
                call("scatterv", source, vector(sizes), vector(starts), data, target,
                     number(sizes[p.rank]), data, root, comm)  # fmt: skip
            case "broadcast":
                buffer = source if p.rank == p.root else target
                call("bcast", buffer, number(whole), data, root, comm)
            case "alltoall":
                assert isinstance(layout, PairLayout)
                give = [n * layout.itemsize for n in layout.counts[p.rank]]
                receive = [row[p.rank] * layout.itemsize for row in layout.counts]
                if len({n for row in set(layout.counts) for n in row}) == 1:
                    each = number(receive[0])
                    call("alltoall", source, each, data, target, each, data, comm)
                else:
                    call("alltoallv", source, vector(give), vector(layout.src), data, target,
                         vector(receive), vector(layout.dst), data, comm)  # fmt: skip
            case "barrier":
                call("barrier", comm)
        out.wait()
        if p.collective == "broadcast" and p.rank == p.root and not aliased:
            out.combine([(SRC, 0, whole)], (DST, 0, whole))
        out.complete((DST, 0, layout.dst_nbytes), divisor, lone)
        return out.finish(input_copied=copied)
