"""The collectives that a user calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hpcoll.config import agreed, settings
from hpcoll.dispatch import Dispatcher
from hpcoll.errors import ConfigError
from hpcoll.nonblocking import NonBlocking
from hpcoll.runtime import endings, progress
from hpcoll.runtime.arrays import Array
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.plan import Plan
from hpcoll.runtime.session import Session
from hpcoll.schedule.ops import Op
from hpcoll.selection import Choice
from hpcoll.version import __version__

INT_MAX = 2**31 - 1


class Communicator(NonBlocking):
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
        self._session = Session(base, config, transport or config.transport)
        self.topology = self._session.topology
        self.rank, self.size = self._session.rank, self._session.size
        self._comm, self._owned = base, _owned
        self._dispatch = Dispatcher(self._session, self.topology)
        self._dispatch.agree(f"communicator of hpcoll {__version__} with {agreed(config)}")
        endings.watch(self._session)
        if config.progress == "thread":
            progress.start_thread()

    # -- collectives of equal counts ---------------------------------------------------

    def allreduce(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Reduce over all ranks; every rank gets the result.

        Parameters
        ----------
        x : array_like
            This rank's operand; of one shape and dtype on all ranks.
        out : ndarray, optional
            Where the result goes, of the same shape and dtype; `x` itself to reduce in
            place. A new array by default.
        op : str or Op
            "sum", "prod", "min", "max", "avg", "land", "lor", "lxor", "band", "bor",
            "bxor", or an operator made by `hpcoll.op`.
        algorithm : str, optional
            Pin an algorithm: "ring", "allreduce/ring", "native".
        timeout : float, optional
            Seconds after which CollectiveTimeout is raised.

        Returns
        -------
        ndarray
            The result; the same bits on all ranks.

        Raises
        ------
        BufferMismatch, ConfigError, RegistryError
            If an argument can't be used.
        MismatchError
            On all ranks, if they don't call the same.
        PeerFailure, CollectiveTimeout, TransportError
            If the call can't end.
        """
        return self._run("allreduce", x, out, op, algorithm=algorithm, timeout=timeout)

    def reduce(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Reduce over all ranks onto the root; other ranks get None and `out` is not used."""
        return self._run("reduce", x, out, op, root=root, algorithm=algorithm, timeout=timeout)

    def scan(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Reduce over the ranks from 0 to this one, in rank order."""
        return self._run("scan", x, out, op, algorithm=algorithm, timeout=timeout)

    def exscan(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Reduce over the ranks before this one, in rank order.

        On rank 0 `out` stays as it is; without `out` the result is filled with the
        operator's identity, or None where it has none.
        """
        return self._run("exscan", x, out, op, algorithm=algorithm, timeout=timeout)

    def broadcast(
        self,
        x: object,
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Give the root's array to every rank.

        On other ranks `x` tells shape and dtype only; it is not read, and not written
        unless it is `out` too. They may pass None with `out`.
        """
        return self._run("broadcast", x, out, root=root, algorithm=algorithm, timeout=timeout)

    def allgather(
        self,
        x: object,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Stack every rank's array: result of shape (size, *x.shape).

        `out` may also have the shape of the arrays put one after another along axis 0.
        """
        return self._run("allgather", x, out, algorithm=algorithm, timeout=timeout)

    def gather(
        self,
        x: object,
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Stack every rank's array on the root; other ranks get None."""
        return self._run("gather", x, out, root=root, algorithm=algorithm, timeout=timeout)

    def scatter(
        self,
        x: object,
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Split the root's array along axis 0 and give every rank its part.

        Other ranks pass None with `out`, or an `x` of the root's shape and dtype, which
        is not read.
        """
        return self._run("scatter", x, out, root=root, algorithm=algorithm, timeout=timeout)

    def reduce_scatter(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Reduce over all ranks; every rank gets its part of axis 0.

        In place, `out` is this rank's part of `x`.
        """
        return self._run("reduce_scatter", x, out, op, algorithm=algorithm, timeout=timeout)

    def alltoall(
        self,
        x: object,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Split axis 0 over the ranks; part i goes to rank i and is replaced by its part."""
        return self._run("alltoall", x, out, algorithm=algorithm, timeout=timeout)

    def barrier(self, *, algorithm: str | None = None, timeout: float | None = None) -> None:
        """Wait until every rank has come here."""
        self._run("barrier", algorithm=algorithm, timeout=timeout)

    # -- v-forms: a number of rows for each rank ----------------------------------------

    def allgatherv(
        self,
        x: object,
        out: Array | None = None,
        counts: Sequence[int] | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Concatenate every rank's rows along axis 0.

        `counts` holds the rows of each rank, the same on all; left out on all ranks,
        they are exchanged first.
        """
        return self._run("allgatherv", x, out, counts=counts, algorithm=algorithm, timeout=timeout)

    def gatherv(
        self,
        x: object,
        out: Array | None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Concatenate every rank's rows on the root; `counts` as in `allgatherv`."""
        return self._run(
            "gatherv", x, out, root=root, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def scatterv(
        self,
        x: object,
        counts: Sequence[int],
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Give rank i ``counts[i]`` rows of the root's array."""
        return self._run(
            "scatterv", x, out, root=root, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def reduce_scatterv(
        self,
        x: object,
        counts: Sequence[int],
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Reduce over all ranks; rank i gets ``counts[i]`` rows."""
        return self._run(
            "reduce_scatterv", x, out, op, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def alltoallv(
        self,
        x: object,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Send ``send_counts[i]`` rows to rank i; the rows received are concatenated.

        Counts are exchanged and checked in every call (use a plan for repeated ones);
        `recv_counts` may be left out.
        """
        return self._run(
            "alltoallv", x, out, counts=send_counts, recv_counts=recv_counts,
            algorithm=algorithm, timeout=timeout,
        )  # fmt: skip

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
        return Communicator(part, transport=self.transport, _owned=True)

    def dup(self) -> Communicator:
        """Make a communicator of the same ranks whose calls are apart from this one's."""
        self._dispatch.agree("dup of the communicator")
        return Communicator(self._comm.Dup(), transport=self.transport, _owned=True)

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

    def _run(self, name: str, x: object = None, out: Array | None = None, op: str | Op = "sum",
             **rest: Any) -> Array:  # fmt: skip
        # None only where the collective's own annotation says so.
        return cast(Array, self._dispatch.run(name, x, out, op=op, **rest))


def _small_int(what: str, value: object, least: int) -> int:
    """Check a number that MPI takes as a C int."""
    kinds = (int, np.integer)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= INT_MAX:
        none = ", or None" if what == "color" else ""
        raise ConfigError(
            f"{what} must be an integer from {least} to {INT_MAX}{none}, not {value!r}"
        )
    return int(value)
