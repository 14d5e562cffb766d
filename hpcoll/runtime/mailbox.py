"""Small control messages between the ranks of a communicator, never waited for.

They travel as JSON on a communicator of their own, so that nothing of a peer is
ever unpickled and no data message is taken for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from hpcoll.errors import TransportError
from hpcoll.runtime.bootstrap import failed_ranks, mpi

OPENING_TAG = 0
_TAGS = 30000  # MPI promises tags up to 32767


class Mailbox:
    """Sends and receives control messages without blocking.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator to duplicate; collective over it.
    waiting : callable
        Called again and again until all ranks have come; may raise.
    """

    def __init__(self, comm: Any, waiting: Callable[[], None]) -> None:
        module = mpi()
        self._comm, request = comm.Idup()
        while not request.Test():
            waiting()
        self._comm.Set_errhandler(module.ERRORS_RETURN)
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self._tag = OPENING_TAG
        self._outgoing: list[tuple[Any, bytes]] = []
        self._incoming: list[tuple[Any, int, bytearray]] = []
        self._status = module.Status()

    def number(self, serial: int) -> None:
        """Tell this communicator's letters from those of earlier ones.

        The library may give a new communicator the identity of one that was freed,
        and with it letters that nobody took. `serial` must be equal on all ranks.
        """
        self._tag = OPENING_TAG + 1 + serial % _TAGS

    def post(self, letter: dict[str, Any], peers: Iterable[int] | None = None) -> None:
        """Send a letter to some ranks, or to all others; those that are dead are left out."""
        module = mpi()
        data = json.dumps(letter, separators=(",", ":")).encode()
        if peers is None:
            peers = ((self.rank + step) % self.size for step in range(1, self.size))
        for peer in peers:
            try:
                request = self._comm.Isend([data, module.BYTE], peer, self._tag)
            except module.Exception:
                continue
            self._outgoing.append((request, data))

    def fetch(self) -> list[tuple[int, dict[str, Any]]]:
        """All letters that have arrived, as (sender, letter).

        Raises
        ------
        TransportError
            If the library reports that the communicator failed.
        """
        module = mpi()
        try:
            # Matched probes, because the progress thread may look as well; received
            # without blocking, because a long letter needs its sender's help.
            while message := self._comm.Improbe(module.ANY_SOURCE, self._tag, self._status):
                sender, nbytes = self._status.Get_source(), self._status.Get_count(module.BYTE)
                data = bytearray(nbytes)
                self._incoming.append((message.Irecv([data, module.BYTE]), sender, data))
            letters, waiting = [], []
            for request, sender, data in self._incoming:
                if request.Test():
                    letters.append((sender, json.loads(data)))
                else:
                    waiting.append((request, sender, data))
            self._incoming = waiting
            if self._outgoing:
                self._outgoing = [pair for pair in self._outgoing if not pair[0].Test()]
        except module.Exception as error:
            raise TransportError(f"control messages failed: {error}") from None
        return letters

    def failed(self) -> list[int]:
        """The ranks that MPI knows to have died; none where it doesn't tell (no ULFM)."""
        return failed_ranks(self._comm)

    def close(self) -> None:
        """Free the duplicate; collective."""
        if self._comm is not None:
            self._comm.Free()
            self._comm = None
