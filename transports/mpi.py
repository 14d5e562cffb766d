"""Two-sided messages over MPI: reaches every rank, takes host memory.

The compiled half is the MPI library's own functions, by address; both pointer and
int handles fit int64 arguments. Tags hold call number, signature bits and lane, so a
message can't be taken for one of another call.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.runtime import words
from hpcoll.runtime.bootstrap import failed_ranks, mpi
from hpcoll.runtime.heap import Heap
from hpcoll.runtime.native import NativeCollectives
from hpcoll.schedule.operations import LANES

LANE_BITS = LANES.bit_length() - 1
SPLIT_NBYTES = 1 << 30
"""Size of the pieces of a message where the library counts with 32 bits."""


def unavailable() -> str | None:
    """Why this transport can't be used; None where it can."""
    mpi()
    return None


@cache
def library() -> ctypes.CDLL:
    """The MPI library that mpi4py has loaded."""
    return ctypes.CDLL(mpi().__file__)


def address_of(name: str) -> int:
    """Address of an MPI function, or 0 where the library lacks it."""
    try:
        function = getattr(library(), name)
    except AttributeError:
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def handle_of(obj: Any) -> int:
    """An MPI handle as a signed 64-bit integer."""
    value = int(mpi()._handleof(obj))
    return value - (1 << 64) if value >= 1 << 63 else value


class MpiChannel:
    """MPI messages on a private duplicate of a communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator to duplicate; collective over it.
    limit : int
        Largest message in bytes; 0 for the library's own limit.
    oversubscribed : bool
        Whether the node has more ranks than cores: then waiting ranks give way.
    """

    name = "mpi"
    heap: Heap | None = None

    def __init__(self, comm: Any, *, limit: int = 0, oversubscribed: bool = False) -> None:
        module = mpi()
        self.comm = comm.Dup()
        self.comm.Set_errhandler(module.ERRORS_RETURN)
        large = bool(address_of("MPI_Isend_c"))
        self.message_limit = limit or (1 << 62 if large else SPLIT_NBYTES)
        self._outgrown: list[np.ndarray[Any, Any]] = []
        self._statuses = np.zeros(1024, np.int64)
        suffix = "_c" if large else ""
        table = self.table = np.zeros(words.CHANNEL_WORDS, np.int64)
        table[words.USABLE] = 1
        table[words.SEND_FUNCTION] = address_of(f"MPI_Isend{suffix}")
        table[words.RECV_FUNCTION] = address_of(f"MPI_Irecv{suffix}")
        table[words.TEST_FUNCTION] = address_of("MPI_Testall")
        table[words.DATATYPE] = handle_of(module.BYTE)
        table[words.COMM] = handle_of(self.comm)
        table[words.REQUEST_NBYTES] = module._sizeof(module.Request)
        table[words.SPINS] = 4 if oversubscribed else 2000
        table[words.YIELDS] = 40 if oversubscribed else 20000
        # Open MPI has this attribute on COMM_WORLD and its duplicates, not on parts of it.
        self._lay_out_tags(int(module.COMM_WORLD.Get_attr(module.TAG_UB)))
        self.reserve(64)

    def reserve(self, requests: int) -> None:
        """Make room for the statuses of as many requests."""
        room = requests * mpi()._sizeof(mpi().Status) // 8 + 8
        if len(self._statuses) < room:
            self._outgrown.append(self._statuses)  # a run in flight may still use them
            self._statuses = np.zeros(2 * room, np.int64)
        self.table[words.STATUSES] = self._statuses.ctypes.data

    def _lay_out_tags(self, upper_bound: int) -> None:
        """Share the bits of a tag: lane lowest, then signature, then call number."""
        bits = (upper_bound + 1).bit_length() - 1
        signature = (bits - LANE_BITS) // 2
        calls = bits - LANE_BITS - signature
        self.table[words.SIGNATURE_SHIFT] = LANE_BITS
        self.table[words.SIGNATURE_MASK] = (1 << signature) - 1
        self.table[words.CALL_SHIFT] = LANE_BITS + signature
        self.table[words.CALL_MASK] = (1 << calls) - 1

    def send(self, buffer: NDArray[np.uint8], peer: int, tag: int) -> Any:
        """Post a send; return a request."""
        return self.comm.Isend([buffer, mpi().BYTE], peer, tag)

    def recv(self, buffer: NDArray[np.uint8], peer: int, tag: int) -> Any:
        """Post a receive; return a request."""
        return self.comm.Irecv([buffer, mpi().BYTE], peer, tag)

    def native(self, function: int, arguments: list[int]) -> Any:
        """Post a native collective; return a request."""
        module = mpi()
        raw = ctypes.create_string_buffer(module._sizeof(module.Request))
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * (len(arguments) + 1))
        code = kind(function)(*arguments, ctypes.addressof(raw))
        if code:
            raise module.Exception(code)
        return module.Request.fromhandle(int.from_bytes(raw.raw, "little"))

    def test_all(self, requests: list[Any]) -> bool:
        """Whether all requests are complete."""
        return bool(mpi().Request.Testall(requests))

    def pending(self, addresses: list[int]) -> list[bool]:
        """For each posted request of the compiled engine, whether it is incomplete."""
        status = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
            address_of("MPI_Request_get_status")
        )
        width = int(self.table[words.REQUEST_NBYTES])
        flag = ctypes.c_int(0)
        room = ctypes.create_string_buffer(mpi()._sizeof(mpi().Status))
        found = []
        for address in addresses:
            handle = int.from_bytes(ctypes.string_at(address, width), "little")
            code = status(handle, ctypes.addressof(flag), ctypes.addressof(room))
            found.append(code == 0 and not flag.value)
        return found

    def explain_error(self, code: int) -> tuple[str, list[int]]:
        """The library's text for an error code, and the ranks known to have died."""
        module = mpi()
        try:
            text = str(module.Get_error_string(code)).strip()
        except module.Exception:
            text = f"MPI error {code}"
        return text, self.dead_peers()

    def dead_peers(self) -> list[int]:
        """The ranks that MPI knows to have died; none where it doesn't tell (no ULFM)."""
        return failed_ranks(self.comm)

    def native_rows(self) -> NativeCollectives:
        """What lowers native collectives."""
        return NativeCollectives(self.comm, address_of, handle_of)

    def close(self) -> None:
        """Free the duplicate; collective."""
        if self.comm is not None:
            self.comm.Free()
            self.comm = None


def open_channel(comm: Any, *, limit: int, oversubscribed: bool) -> MpiChannel:
    """Open the transport on a communicator; collective over it."""
    return MpiChannel(comm, limit=limit, oversubscribed=oversubscribed)
