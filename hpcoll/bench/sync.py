"""A barrier for timing: ranks of one node leave it within a fraction of a microsecond."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hpcoll.kernels.compile import compiling
from hpcoll.kernels.intrinsics import (
    load_acquire,
    pause,
    sched_yield,
    store_release,
    usleep,
)
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.engine import entry_point

_LINE = 128


@njit(nogil=True, cache=True)
def _meet(base: int, rank: int, size: int, ticket: int, spins: int) -> int:
    """Publish the ticket and wait until all ranks have published theirs."""
    store_release(base + _LINE * rank, ticket)
    for peer in range(size):
        polls = 0
        while load_acquire(base + _LINE * peer) < ticket:
            polls += 1
            if polls < spins:
                pause()
            elif polls < spins + 100:
                sched_yield()
            else:
                usleep(20)
    return 0


class NodeBarrier:
    """A barrier over shared memory where all ranks share a node, else MPI's.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The ranks; making it is collective.
    one_node : bool
        Whether they share a node.
    crowded : bool
        Whether they outnumber the cores.
    """

    def __init__(self, comm: Any, *, one_node: bool, crowded: bool) -> None:
        self._comm = comm
        self._rank, self._size = comm.Get_rank(), comm.Get_size()
        self._spins = 20 if crowded else 100_000
        self._ticket = 0
        self._window = None
        if one_node:
            module = mpi()
            nbytes = _LINE * (self._size + 1) if self._rank == 0 else 0
            self._window = module.Win.Allocate_shared(nbytes, 1, comm=comm)
            memory, _ = self._window.Shared_query(0)
            self._bytes = np.frombuffer(memory, np.uint8)
            self._base = (int(self._bytes.ctypes.data) + 63) // 64 * 64
            if self._rank == 0:
                self._bytes[:] = 0
            with compiling("bench-sync", entry_point_of):
                self._entry = entry_point(_meet, 5)
            comm.Barrier()

    def __call__(self) -> None:
        """Wait for all ranks."""
        if self._window is None:
            self._comm.Barrier()
            return
        self._ticket += 1
        self._entry(self._base, self._rank, self._size, self._ticket, self._spins)

    def close(self) -> None:
        """Free the window; collective."""
        if self._window is not None:
            self._window.Free()
            self._window = None


def entry_point_of() -> None:
    """Tells the compile lock in which file the functions are."""
