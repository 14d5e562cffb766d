"""Small control messages between the ranks of a communicator, never waited for.

They travel as JSON on a communicator of their own, so that nothing of a peer is
ever unpickled and no data message is taken for one.
"""

from __future__ import annotations

import json
from typing import Any

from hpcoll.errors import TransportError
from hpcoll.runtime.bootstrap import mpi

MAIL_TAG = 7


class Mailbox:
    """Sends and receives control messages without blocking.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator to duplicate; collective over it.
    """

    def __init__(self, comm: Any) -> None:
        module = mpi()
        self._comm = comm.Dup()
        self._comm.Set_errhandler(module.ERRORS_RETURN)
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self._outgoing: list[tuple[Any, bytes]] = []
        self._status = module.Status()

    def post(self, peer: int, letter: dict[str, Any]) -> None:
        """Send a letter; the peer gets it when it next looks."""
        data = json.dumps(letter, separators=(",", ":")).encode()
        module = mpi()
        try:
            request = self._comm.Isend([data, module.BYTE], peer, MAIL_TAG)
        except module.Exception as error:
            raise TransportError(f"can't tell rank {peer}: {error}") from None
        self._outgoing.append((request, data))

    def post_all(self, letter: dict[str, Any]) -> None:
        """Send a letter to every other rank, those that are gone left out."""
        for step in range(1, self.size):
            try:
                self.post((self.rank + step) % self.size, letter)
            except TransportError:
                continue

    def fetch(self) -> list[tuple[int, dict[str, Any]]]:
        """All letters that have arrived, as (sender, letter).

        Raises
        ------
        TransportError
            If the library reports that the communicator failed.
        """
        module = mpi()
        letters = []
        try:
            while self._comm.Iprobe(module.ANY_SOURCE, MAIL_TAG, self._status):
                sender = self._status.Get_source()
                data = bytearray(self._status.Get_count(module.BYTE))
                self._comm.Recv([data, module.BYTE], sender, MAIL_TAG)
                letters.append((sender, json.loads(data)))
            self._outgoing = [pair for pair in self._outgoing if not pair[0].Test()]
        except module.Exception as error:
            raise TransportError(f"control messages failed: {error}") from None
        return letters

    def abandon(self) -> None:
        """Revoke the communicator where MPI can."""
        module = mpi()
        try:
            self._comm.Revoke()
        except (module.Exception, NotImplementedError):
            return

    def close(self) -> None:
        """Free the duplicate; collective."""
        if self._comm is not None:
            self._comm.Free()
            self._comm = None
