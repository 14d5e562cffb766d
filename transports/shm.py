"""Shared memory of one node: ranks publish in their own segment and read in the others'.

What the library does itself (its native collectives) still goes over MPI.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import time
from typing import Any

import numpy as np

from hpcoll.errors import HpcollError, TransportUnavailable
from hpcoll.runtime import segments, words
from hpcoll.runtime.heap import Group, Heap, groups, heap_nbytes
from hpcoll.runtime.presence import Presence
from hpcoll.runtime.run import aligned
from hpcoll.runtime.shared_combine import BOUNCE_NBYTES
from hpcoll.runtime.shared_file import FOLDER, SharedFile, sweep
from hpcoll.transports.mpi import MpiChannel

CLOSING_S = 5.0
"""So long a rank that closes waits for the others, all of which have come to close."""


def unavailable() -> str | None:
    """Why this transport can't be used; None where it can."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return f"needs Linux on x86_64, this is {sys.platform} on {platform.machine()}"
    if not os.access(FOLDER, os.W_OK):
        return f"needs {FOLDER}, which this process can't write in"
    return None


class ShmChannel(MpiChannel):
    """The segments of all ranks of a communicator, and an MPI channel beside.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator; collective over it.
    limit : int
        Largest MPI message in bytes; 0 for the library's own limit.
    oversubscribed : bool
        Whether there are more ranks than cores: then waiting ranks give way soon.

    Raises
    ------
    TransportUnavailable
        On all ranks, if one can't reach the memory of another.
    """

    name = "shm"

    def __init__(self, comm: Any, *, limit: int = 0, oversubscribed: bool = False) -> None:
        super().__init__(comm, limit=limit, oversubscribed=oversubscribed)
        rank, size = comm.Get_rank(), comm.Get_size()
        self._files: list[SharedFile] = []
        self._presence: Presence | None = None
        self._open = False
        self._pids = np.zeros(size, np.int64)
        sweep()
        try:
            self._attach(rank)
        except BaseException:
            self.close()
            raise
        self._open = True
        self.segment_bases = np.array([f.address for f in self._files], np.int64)
        table = self.table
        table[words.RANK] = rank
        table[words.SIZE] = size
        table[words.SEGMENTS] = self.segment_bases.ctypes.data
        table[words.HEAPS] = self._heap_bases.ctypes.data
        table[words.HEAP_BEGIN] = self._heap_bases[rank]
        table[words.HEAP_END] = self._heap_bases[rank] + self.heap.file.nbytes
        table[words.PIDS] = self._pids.ctypes.data
        table[words.DEPTH_MASK] = segments.DEPTH - 1
        table[words.LINE_STRIDE] = segments.LINE_STRIDE
        table[words.SLEEPERS] = self.segment_bases[0] + segments.SLEEPERS_AT
        table[words.PAUSES] = 4 if oversubscribed else 2000
        table[words.SHARED_YIELDS] = 20
        self._bounce = aligned(BOUNCE_NBYTES)
        table[words.BOUNCE] = self._bounce.ctypes.data

    def _attach(self, rank: int) -> None:
        """Make this rank's segment, map those of the others, and remove its name."""
        try:
            self.segment = segments.Segment()
        except OSError as error:
            self._all_told([f"{error}"])
            raise
        self._files.append(self.segment)
        known = {name: group.heap.file.name for name, group in list(groups.items())}
        told = self._all_told([None, self.segment.name, os.getpid(), self.segment.address, known])
        try:
            self._files = [
                self.segment if r == rank else SharedFile(segments.SEGMENT_NBYTES, name)
                for r, (_, name, *_) in enumerate(told)
            ]
            self._presence = Presence(FOLDER / told[0][1], rank)
        except OSError as error:
            self._all_told([f"can't reach the memory of other ranks: {error}"])
            raise
        self._pids[:] = [pid for _, _, pid, _, _ in told]
        readable = all(_can_read(pid, address) for _, _, pid, address, _ in told)
        self.reads_memory = all(ok for _, ok in self._all_told([None, readable]))
        self.segment.unlink()
        self._share_heaps(rank, [names for *_, names in told])

    def _share_heaps(self, rank: int, known: list[dict[str, str]]) -> None:
        """Use the heaps that all ranks have of each other already, or make new ones."""
        common = set.intersection(*(set(names) for names in known))
        if common:
            name = min(common)
            self._group = groups[name]
            names = [names[name] for names in known]
        else:
            try:
                mine = Heap(heap_nbytes(len(known)))
            except OSError as error:
                self._all_told([f"{error}"])
                raise
            told = self._all_told([None, mine.file.name, mine.file.nbytes])
            names = [name for _, name, _ in told]
            try:
                others = {n: SharedFile(b, n) for r, (_, n, b) in enumerate(told) if r != rank}
            except OSError as error:
                self._all_told([f"can't reach the heaps of other ranks: {error}"])
                raise
            self._all_told([None])
            mine.file.unlink()
            self._group = Group(names[0], mine, others)
        self.heap: Heap = self._group.heap
        self._heap_bases = self._group.bases(names)

    def _all_told(self, words_of_mine: list[Any]) -> list[list[Any]]:
        """What every rank brought; if one has failed, all do."""
        mine = np.frombuffer(json.dumps(words_of_mine).encode(), np.uint8)
        sizes = np.empty(self.comm.Get_size(), np.int64)
        self.comm.Allgather(np.array([mine.size], np.int64), sizes)
        room = np.empty(int(sizes.sum()), np.uint8)
        self.comm.Allgatherv(mine, [room, sizes.tolist()])
        ends = np.cumsum(sizes).tolist()
        told = [json.loads(room[a:b].tobytes()) for a, b in zip([0, *ends], ends, strict=False)]
        for rank, (failure, *_) in enumerate(told):
            if failure:
                raise TransportUnavailable(f"rank {rank}: {failure}")
        return told

    def dead_peers(self) -> list[int]:
        """The ranks whose processes have ended, and those that MPI knows to have died."""
        gone = self._presence.gone(range(len(self._pids))) if self._presence else []
        return sorted({*super().dead_peers(), *gone})

    def reserve_segment(self, lines: int, *, blocks: bool) -> None:
        """Make sure that this rank's segment has room for a recipe.

        Raises
        ------
        TransportUnavailable
            If it hasn't.
        """
        if lines > segments.LINES:
            raise HpcollError(
                f"the schedule publishes {lines} values on a rank, and shared memory has room for "
                f"{segments.LINES}: use fewer segments, or HPCOLL_TRANSPORT=mpi"
            )
        self.segment.reserve(lines, blocks=blocks)

    def close(self) -> None:
        """Free the segments and the duplicate; collective."""
        if self._open:
            # A rank that has let go of its lock looks dead to those who still wait for it.
            all_here = self.comm.Ibarrier()
            patience_ends = time.monotonic() + CLOSING_S
            while not all_here.Test() and time.monotonic() < patience_ends:
                time.sleep(1e-4)
            self._open = False
        for file in self._files:
            file.close()
        self._files = []
        if self._presence is not None:
            self._presence.close()
        super().close()


def _can_read(pid: int, address: int) -> bool:
    """Whether the kernel lets this process read another one's memory; containers may not."""
    room = ctypes.create_string_buffer(8)
    here = (ctypes.c_int64 * 2)(ctypes.addressof(room), 8)
    there = (ctypes.c_int64 * 2)(address, 8)
    try:
        read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except AttributeError:
        return False
    read.restype = ctypes.c_int64
    vectors: list[Any] = [ctypes.c_void_p, ctypes.c_uint64]
    read.argtypes = [ctypes.c_int64, *vectors, *vectors, ctypes.c_uint64]
    return int(read(pid, here, 1, there, 1, 0)) == 8


def open_channel(comm: Any, *, limit: int, oversubscribed: bool) -> ShmChannel:
    """Open the transport on a communicator; collective over it."""
    return ShmChannel(comm, limit=limit, oversubscribed=oversubscribed)
