"""Sparse files in shared memory: made by one rank, mapped by others, soon without a name."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import secrets
import time
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.errors import TransportUnavailable

FOLDER = Path("/dev/shm")
PREFIX = "hpcoll"
STALE_S = 60.0

_NORESERVE = 0x4000
_REMOVE, _HUGEPAGE = 9, 14
"""Advice of Linux that every Python's mmap doesn't name."""


class SharedFile:
    """A sparse file, readable by its user alone, and its mapping in this process.

    Parameters
    ----------
    nbytes : int
        Size of the address range; memory is taken when `allocate` asks for it.
    name : str, optional
        An existing file's name; a new one is made without it.

    Attributes
    ----------
    name : str
        The file's name in `FOLDER`.
    address : int
        Where it is mapped.

    Raises
    ------
    OSError
        If it can't be made or mapped.
    """

    def __init__(self, nbytes: int, name: str | None = None) -> None:
        self.nbytes = nbytes
        self.name = name or f"{PREFIX}-{os.getuid()}-{os.getpid()}-{secrets.token_hex(6)}"
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if name is None:
            flags |= os.O_CREAT | os.O_EXCL
        self._linked = name is None
        self._fd = os.open(FOLDER / self.name, flags, 0o600)
        try:
            if name is None:
                os.ftruncate(self._fd, nbytes)
            elif os.fstat(self._fd).st_uid != os.getuid():
                raise PermissionError(f"{self.name} belongs to another user")
            self.address = _map(self._fd, nbytes)
        except BaseException:
            self.unlink()
            os.close(self._fd)
            raise
        self._unmap = weakref.finalize(self, _libc().munmap, self.address, nbytes)
        self._unmap.atexit = False
        if name is not None:
            os.close(self._fd)
            self._fd = -1

    def bytes(self, at: int, nbytes: int) -> NDArray[np.uint8]:
        """A part of it; not to be used after the file was closed."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(self.address + at))

    def unlink(self) -> None:
        """Remove the name; the memory lives as long as it is mapped."""
        if self._linked:
            self._linked = False
            with contextlib.suppress(FileNotFoundError):
                (FOLDER / self.name).unlink()

    def allocate(self, at: int, nbytes: int) -> None:
        """Make sure that there is memory for a range.

        Raises
        ------
        TransportUnavailable
            If there isn't.
        """
        try:
            os.posix_fallocate(self._fd, at, nbytes)
        except OSError as error:
            raise no_room(nbytes, error) from None

    def free(self, at: int, nbytes: int) -> None:
        """Give the memory of a range's whole pages back; they read as zeros from then on."""
        page = mmap.PAGESIZE
        first, end = -(-at // page) * page, (at + nbytes) // page * page
        if end > first:
            _libc().madvise(self.address + first, end - first, _REMOVE)

    def prefer_huge_pages(self) -> None:
        """Take large pages where the machine gives them for shared memory."""
        _libc().madvise(self.address, self.nbytes, _HUGEPAGE)

    def close(self) -> None:
        """Unmap it. Nothing may use it afterwards."""
        self.unlink()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._unmap()


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    size, address = ctypes.c_size_t, ctypes.c_void_p
    library.mmap.restype = address
    library.mmap.argtypes = [address, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, size]
    library.munmap.argtypes = [address, size]
    library.madvise.argtypes = [address, size, ctypes.c_int]
    return library


def _map(fd: int, nbytes: int) -> int:
    """Map a file; unlike Python's mmap it keeps no descriptor.

    There are as many mappings as ranks, and closing a copy of a descriptor would drop
    the record locks by which ranks know of each other.
    """
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc().mmap(None, nbytes, protection, mmap.MAP_SHARED | _NORESERVE, fd, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"can't map {nbytes} B of shared memory: {os.strerror(code)}")
    return int(address)


def no_room(nbytes: int, error: OSError) -> TransportUnavailable:
    """What to say when shared memory is full."""
    try:
        status = os.statvfs(FOLDER)
        room = f"{status.f_bavail * status.f_frsize} of {status.f_blocks * status.f_frsize} B free"
    except OSError:
        room = "its size is unknown"
    return TransportUnavailable(
        f"{FOLDER} has no room for {nbytes} B more ({room}; {error.strerror}): enlarge it (mount "
        f"-o remount,size=..., docker --shm-size=...), or set HPCOLL_TRANSPORT=mpi"
    )


_NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-[0-9a-f]+")


def sweep() -> None:
    """Remove what a job left that was killed in the moment between making and unlinking."""
    with contextlib.suppress(OSError):
        for path in FOLDER.glob(f"{PREFIX}-{os.getuid()}-*"):
            match = _NAME.fullmatch(path.name)
            with contextlib.suppress(OSError):
                if match and not alive(int(match[2])) and _age_s(path) > STALE_S:
                    path.unlink()


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime
