"""torch.distributed over gloo, on the same ranks: what ``--versus gloo`` compares with.

torch is imported when a group is made, never before: the command itself needs none.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Any

from hpcoll.bench.data import Case, make_case
from hpcoll.bench.measure import Arrays
from hpcoll.errors import ConfigError
from hpcoll.kernels.dtypes import dtype_name
from hpcoll.runtime.arrays import Array

TIMEOUT = timedelta(seconds=60)

COLLECTIVES = (
    "allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "reduce_scatter",
    "alltoall", "alltoallv", "barrier",
)  # fmt: skip

OPS = {
    "sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG",
    "band": "BAND", "bor": "BOR", "bxor": "BXOR",
}  # fmt: skip

NOTE = (
    "gloo: called through torch.distributed {torch}, one thread for torch; gloo's own threads "
    "share the core of their rank"
)
IN_PLACE_NOTE = "gloo: {collective} has no out-of-place form there, so gloo's runs in place"


def check_gloo(collective: str, op: str | None) -> None:
    """Refuse what gloo can't be asked for, as far as one process can tell.

    Parameters
    ----------
    collective : str
        Such as ``"allreduce"``.
    op : str or None
        The operator, where the collective reduces.

    Raises
    ------
    ConfigError
        If torch is missing, or has no such collective or operator.
    """
    if find_spec("torch") is None:
        raise ConfigError("--versus gloo needs torch: pip install torch")
    if collective not in COLLECTIVES:
        raise ConfigError(f"--versus gloo: gloo has no {collective}")
    if op is not None and op not in OPS:
        raise ConfigError(f"--versus gloo: gloo has no op {op}: use one of {', '.join(OPS)}")


def gloo_in_place(base: str, in_place: bool) -> bool:
    """Whether gloo's call runs in place beside ours.

    Those in the first list have no other form in torch.distributed; those in the second
    have no form in which the result lies where hpcoll's does.
    """
    if base in ("allreduce", "reduce", "broadcast"):
        return True
    return in_place and base not in ("reduce_scatter", "alltoall", "gather", "scatter")


class GlooGroup:
    """The process group of all ranks of a communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The ranks; making a group is collective over it.
    one_node : bool
        Whether they share a node.

    Raises
    ------
    ConfigError
        On all ranks, if torch or the group can't be used on one.
    """

    def __init__(self, comm: Any, *, one_node: bool) -> None:
        self._comm = comm
        self._dist: Any = None
        self._together(self._load)
        self._host = "127.0.0.1" if one_node else comm.bcast(socket.gethostname(), root=0)
        self._port = 0
        self._together(self._serve)
        self._port = comm.bcast(self._port, root=0)
        self._together(self._join)

    def _load(self) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._torch.set_num_threads(1)
        distributed: Any = importlib.import_module("torch.distributed")
        if not distributed.is_available() or not distributed.is_gloo_available():
            raise RuntimeError("this torch was built without gloo")
        if distributed.is_initialized():
            raise RuntimeError("this process has a process group already")
        self._dist = distributed

    def _open_store(self) -> Any:
        rank, size = self._comm.Get_rank(), self._comm.Get_size()
        return self._dist.TCPStore(
            self._host, self._port, size, rank == 0, timeout=TIMEOUT, wait_for_workers=False
        )

    def _serve(self) -> None:
        """Open the store on rank 0, at a port that is free."""
        if self._comm.Get_rank() == 0:
            self._store = self._open_store()
            self._port = self._store.port

    def _join(self) -> None:
        rank, size = self._comm.Get_rank(), self._comm.Get_size()
        if rank != 0:
            self._store = self._open_store()
        self._dist.init_process_group(
            "gloo", store=self._store, rank=rank, world_size=size, timeout=TIMEOUT
        )

    def notes(self, base: str, in_place: bool) -> list[str]:
        """Lines for the head of the table."""
        lines = [NOTE.format(torch=self._torch.__version__)]
        if gloo_in_place(base, in_place) and not in_place:
            lines.append(IN_PLACE_NOTE.format(collective=base))
        return lines

    def check(self, case: Case, *, in_place: bool) -> None:
        """Try one small call like those of a case, and look at its result.

        Which dtypes and operators there are depends on the version of torch.

        Raises
        ------
        ConfigError
            On all ranks, if one can't make the call or gets a wrong result.
        """
        check_gloo(case.name, case.op.name if case.op else None)
        nbytes = 0 if case.base == "barrier" else 2 * case.size * case.dtype.itemsize
        small = make_case(case.name, nbytes, case.size, case.rank, case.root, case.dtype, case.op)
        arrays = Arrays.of(small, in_place=gloo_in_place(case.base, in_place))

        def trial() -> None:
            arrays.poison(0)
            self.caller(small, arrays)()
            if arrays.wrong(0):
                raise RuntimeError("its result is not hpcoll's")

        what = f"gloo can't run {case.name} of {dtype_name(case.dtype)}"
        self._together(trial, what + (f" with op {case.op.name}" if case.op else ""))

    def _together(self, action: Callable[[], None], what: str = "") -> None:
        """Do something on all ranks; if it fails on one, raise on all."""
        reason = None
        try:
            action()
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        for rank, told in enumerate(self._comm.allgather(reason)):
            if told is not None:
                self.close()
                raise ConfigError(f"--versus gloo: {what and what + ': '}rank {rank}: {told}")

    def caller(self, case: Case, arrays: Arrays) -> Callable[[], Any]:
        """The collective as a user of torch.distributed calls it, on views of arrays.

        Parameters
        ----------
        case : Case
            What to call.
        arrays : Arrays
            In place where `gloo_in_place` says so.
        """
        dist, me, root = self._dist, case.rank, case.root
        if case.base == "barrier":
            return partial(dist.barrier)
        source, target = self._tensor(arrays.source), self._tensor(arrays.target)
        op = getattr(dist.ReduceOp, OPS[case.op.name]) if case.op else None
        match case.base:
            case "allreduce":
                return partial(dist.all_reduce, target, op)
            case "reduce":
                return partial(dist.reduce, source, root, op)
            case "broadcast":
                return partial(dist.broadcast, target, root)
            case "allgather":
                return partial(
                    self._named("all_gather_single", "all_gather_into_tensor"), target, source
                )
            case "reduce_scatter":
                return partial(
                    self._named("reduce_scatter_single", "reduce_scatter_tensor"),
                    target,
                    source,
                    op,
                )
            case "gather":
                parts = list(target.split(list(case.rows))) if me == root else None
                return partial(dist.gather, source, parts, root)
            case "scatter":
                parts = list(source.split(list(case.rows))) if me == root else None
                return partial(dist.scatter, target, parts, root)
        if case.name == case.base:
            return partial(dist.all_to_all_single, target, source)
        into = [row[me] for row in case.rows]
        return partial(dist.all_to_all_single, target, source, into, list(case.rows[me]))

    def _named(self, name: str, before: str) -> Any:
        """A function of torch.distributed by its name, or by that of older versions."""
        return getattr(self._dist, name, None) or getattr(self._dist, before)

    def _tensor(self, array: Array) -> Any:
        """A tensor over an array's memory."""
        if array.dtype.name == "bfloat16":  # which NumPy and torch each have their own of
            return self._torch.from_numpy(array.view("int16")).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def close(self) -> None:
        """End the group; collective. Does nothing the second time."""
        dist, self._dist = self._dist, None
        if dist is not None and dist.is_initialized():
            dist.destroy_process_group()
            self._comm.Barrier()  # the store is rank 0's, and the others may still use it
