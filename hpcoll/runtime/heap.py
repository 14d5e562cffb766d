"""Arrays that the other ranks of a node read without a copy: each rank's shared heap.

A heap is one sparse file, mapped by all ranks of a group, that takes memory as arrays are
made and gives it back as they are dropped. Communicators of ranks that already share
heaps use those, so an array from one serves the others too.
"""

from __future__ import annotations

import operator
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.errors import ConfigError
from hpcoll.runtime.arena import PAGE_NBYTES, Arena
from hpcoll.runtime.shared_file import FOLDER, SharedFile, no_room

LEAST_GIVEN_BACK = 64 << 10
"""Smaller free ranges keep their memory: it will be wanted again."""

ADDRESS_SPACE = 1 << 45
"""Bytes that the heaps of a group may span in a process, of the 2**47 that there are."""


class Heap:
    """This rank's heap.

    Parameters
    ----------
    nbytes : int
        Size of its address range.

    Raises
    ------
    OSError
        If it can't be made.
    """

    def __init__(self, nbytes: int) -> None:
        self.file = SharedFile(nbytes)
        self.file.prefer_huge_pages()
        self._arena = Arena(nbytes)
        self._lock = threading.Lock()
        self._dropped: deque[int] = deque()
        self._pid = os.getpid()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A new C-contiguous array; its memory is free again when nothing refers to it.

        Raises
        ------
        TransportUnavailable
            If shared memory has no room for it.
        """
        nbytes = prod(shape) * dtype.itemsize
        if nbytes == 0:
            return np.empty(shape, dtype)
        with self._lock:
            self._settle()
            at = self._arena.take(nbytes)
        if at is None:
            raise no_room(nbytes, OSError(0, "the address range of the heap is used up"))
        first = at // PAGE_NBYTES * PAGE_NBYTES
        try:
            self.file.allocate(first, at + nbytes - first)
        except BaseException:
            self._drop(at)
            raise
        block = _Block(self.file.address + at, nbytes)
        weakref.finalize(block, self._drop, at).atexit = False
        return np.asarray(block).view(dtype).reshape(shape)

    @property
    def taken_nbytes(self) -> int:
        """Bytes of all arrays that are alive, with their padding."""
        with self._lock:
            self._settle()
            return self._arena.taken_nbytes

    def _drop(self, at: int) -> None:
        """Free an array's memory; the garbage collector may call this at any moment."""
        if os.getpid() != self._pid:
            return  # a forked process has no say
        self._dropped.append(at)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        while self._dropped:
            begin, end = self._arena.give_back(self._dropped.popleft())
            if end - begin >= LEAST_GIVEN_BACK:
                self.file.free(begin, end - begin)


def new_array(heap: Heap | None, shape: int | Sequence[int], dtype: object) -> NDArray[Any]:
    """An array on a heap; an ordinary one where there is none.

    Raises
    ------
    ConfigError
        If shape or dtype are none that an array can have.
    """
    try:
        kind = np.dtype(dtype)  # type: ignore[call-overload]
        sides = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        wanted = tuple(operator.index(n) for n in sides)
    except TypeError as error:
        raise ConfigError(f"no array of shape {shape!r} and dtype {dtype!r}: {error}") from None
    if kind.hasobject:
        raise ConfigError(f"dtype {kind} holds Python objects: other ranks can't read those")
    if any(n < 0 for n in wanted):
        raise ConfigError(f"shape {shape!r} has a negative side")
    if heap is None:
        return np.empty(wanted, kind)
    return heap.empty(wanted, kind)


class _Block:
    """The memory of one array, whose base it is."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {
            "version": 3, "data": (address, False), "shape": (nbytes,), "typestr": "|u1",
        }  # fmt: skip


class Group:
    """Heaps of ranks that have each other's mapped.

    Parameters
    ----------
    name : str
        The same on all of them.
    heap : Heap
        This rank's.
    others : mapping of str to SharedFile
        The other ranks' files by name.
    """

    def __init__(self, name: str, heap: Heap, others: Mapping[str, SharedFile]) -> None:
        self.name = name
        self.heap = heap
        self._files = {**others, heap.file.name: heap.file}
        groups[name] = self

    def bases(self, names: list[str]) -> NDArray[np.int64]:
        """Where the heaps of some ranks are mapped."""
        return np.array([self._files[n].address for n in names], np.int64)


groups: weakref.WeakValueDictionary[str, Group] = weakref.WeakValueDictionary()
"""This process's groups by name."""


def heap_nbytes(size: int) -> int:
    """Address range for each of `size` heaps: what shared memory holds, where that fits."""
    status = os.statvfs(FOLDER)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    space = ADDRESS_SPACE if limit == resource.RLIM_INFINITY else min(ADDRESS_SPACE, limit // 4)
    nbytes = min(status.f_blocks * status.f_frsize, space // size)
    return max(nbytes // PAGE_NBYTES, 2) * PAGE_NBYTES
