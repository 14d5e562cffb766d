"""A group of ranks: made, split and closed; its plans, and what it would choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcoll.blocking import Blocking
from hpcoll.config import agreed, settings
from hpcoll.dispatch import Dispatcher
from hpcoll.errors import ConfigError
from hpcoll.nonblocking import NonBlocking
from hpcoll.runtime import endings, progress
from hpcoll.runtime.arrays import Array
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.heap import new_array
from hpcoll.runtime.native import INT_MAX
from hpcoll.runtime.plan import Plan
from hpcoll.runtime.session import Session
from hpcoll.schedule.ops import Op
from hpcoll.selection import Choice
from hpcoll.version import __version__


class Communicator(Blocking, NonBlocking):
    """A group of ranks and their collectives.

    Making one is collective over `comm`. All methods named like a collective block;
    the same with an ``i`` in front return a `Request`.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        The ranks; all of them (``MPI.COMM_WORLD``) by default.
    transport : str, optional
        Name of a transport; ``HPCOLL_TRANSPORT`` by default.

    Attributes
    ----------
    rank, size : int
        This rank and the number of ranks.
    topology : Topology
        Which ranks share a node.

    Raises
    ------
    MismatchError
        If the ranks run different versions or settings.
    TransportUnavailable
        If MPI or the transport can't be used here.
    """

    def __init__(
        self, comm: Any = None, *, transport: str | None = None, _owned: bool = False
    ) -> None:
        base = mpi().COMM_WORLD if comm is None else comm
        try:
            config = settings()
        except ConfigError:
            endings.install()  # the other ranks wait for this one
            raise
        if config.hooks:
            endings.install()
        self._asked = transport or config.transport
        self._session = Session(base, config, self._asked)
        self.topology = self._session.topology
        self.rank, self.size = self._session.rank, self._session.size
        self._comm, self._owned = base, _owned
        self._dispatch = Dispatcher(self._session, self.topology)
        self._dispatch.agree(f"communicator of hpcoll {__version__} with {agreed(config)}")
        endings.watch(self._session)
        if config.progress == "thread":
            progress.start_thread()

    # -- started, persistent, explained -------------------------------------------------

    def plan(
        self,
        collective: str,
        x: object = None,
        out: Array | None = None,
        *,
        op: str | Op = "sum",
        root: int = 0,
        counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Plan:
        """Make a persistent collective; every rank must.

        Parameters
        ----------
        collective : str
            Such as "allreduce" or "alltoallv".
        x, out, op, root, counts, algorithm, timeout
            As for the collective; `counts` are alltoallv's send_counts.

        Returns
        -------
        Plan
            ``plan()`` runs it, ``plan.start()`` returns a `Request`. It holds `x` and
            `out`, and reads and writes them in every run.
        """
        return self._dispatch.plan(
            collective, x, out, op=op, root=root, counts=counts, recv_counts=recv_counts,
            algorithm=algorithm, timeout=timeout,
        )  # fmt: skip

    def explain(
        self,
        collective: str,
        x: object = None,
        *,
        nbytes: int | None = None,
        dtype: str = "float32",
        op: str | Op = "sum",
        root: int = 0,
        algorithm: str | None = None,
    ) -> Choice:
        """Say which algorithm would serve a call, and why; local, nothing is sent.

        Parameters
        ----------
        collective : str
            Such as "allreduce".
        x : array_like, optional
            The array of the call; or give `nbytes` and `dtype`.
        nbytes : int, optional
            Message size in bytes, as counted by nccl-tests.
        """
        return self._dispatch.explain(
            collective, x, nbytes=nbytes, dtype=dtype, op=op, root=root, algorithm=algorithm
        )

    # -- arrays -------------------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: Any = float) -> Array:
        """Make an array that the other ranks can read without a copy; local.

        It lies on this rank's shared heap, which grows as needed; its memory is given
        back when nothing refers to it any more. Collectives take it like any array, and
        are faster on it from about 4 KiB on. Where the ranks share no memory it is an
        ordinary array.

        Parameters
        ----------
        shape : int or sequence of int
            Its shape.
        dtype : dtype_like
            Type of its elements; float64 by default.

        Returns
        -------
        ndarray
            C-contiguous, uninitialised.

        Raises
        ------
        ConfigError
            If there can't be such an array.
        TransportUnavailable
            If shared memory has no room for it.
        """
        self._session.check_usable()
        return new_array(self._session.channel.heap, shape, dtype)

    def zeros(self, shape: int | Sequence[int], dtype: Any = float) -> Array:
        """The same as `empty`, filled with zeros."""
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    # -- groups --------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Make communicators of the ranks with equal color, ordered by key.

        Collective. A rank with color None gets none.
        """
        self._session.check_usable()
        try:
            place = _small_int("key", key, -INT_MAX)
            group = mpi().UNDEFINED if color is None else _small_int("color", color, 0)
        except ConfigError as error:
            self._session.refuse(error)
            raise
        self._dispatch.agree("split of the communicator")
        part = self._comm.Split(group, place)
        if part == mpi().COMM_NULL:
            return None
        return Communicator(part, transport=self._asked, _owned=True)

    def dup(self) -> Communicator:
        """Make a communicator of the same ranks whose calls are apart from this one's."""
        self._dispatch.agree("dup of the communicator")
        return Communicator(self._comm.Dup(), transport=self._asked, _owned=True)

    def close(self) -> None:
        """Free the communicator; collective. Does nothing the second time."""
        usable = self._session.unusable is None
        self._session.close()
        if self._owned and usable:
            self._comm.Free()
        self._owned = False

    @property
    def transport(self) -> str:
        """Name of the transport."""
        return str(self._session.channel.name)

    def native_collectives(self) -> Any:
        """The library's own collectives as rows of a recipe: what bench compares with."""
        return self._session.channel.native_rows()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"<hpcoll.Communicator rank {self.rank}/{self.size}>"


def _small_int(what: str, value: object, least: int) -> int:
    """Check a number that MPI takes as a C int."""
    kinds = (int, np.integer)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= INT_MAX:
        none = ", or None" if what == "color" else ""
        raise ConfigError(
            f"{what} must be an integer from {least} to {INT_MAX}{none}, not {value!r}"
        )
    return int(value)
