"""The collectives that a user calls, and that return when the result is there."""

from __future__ import annotations

from collections.abc import Sequence

from hpcoll.dispatch import Dispatcher
from hpcoll.runtime.arrays import Array
from hpcoll.schedule.ops import Op


class Blocking:
    """The blocking forms of all collectives."""

    _dispatch: Dispatcher

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
        return self._dispatch.run("allreduce", x, out, op, 0, algorithm, timeout)

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
        return self._dispatch.run("reduce", x, out, op, root, algorithm, timeout)

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
        return self._dispatch.run("scan", x, out, op, 0, algorithm, timeout)

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
        return self._dispatch.run("exscan", x, out, op, 0, algorithm, timeout)

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
        return self._dispatch.run("broadcast", x, out, "sum", root, algorithm, timeout)

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
        return self._dispatch.run("allgather", x, out, "sum", 0, algorithm, timeout)

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
        return self._dispatch.run("gather", x, out, "sum", root, algorithm, timeout)

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
        return self._dispatch.run("scatter", x, out, "sum", root, algorithm, timeout)

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
        return self._dispatch.run("reduce_scatter", x, out, op, 0, algorithm, timeout)

    def alltoall(
        self,
        x: object,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Split axis 0 over the ranks; part i goes to rank i and is replaced by its part."""
        return self._dispatch.run("alltoall", x, out, "sum", 0, algorithm, timeout)

    def barrier(self, *, algorithm: str | None = None, timeout: float | None = None) -> None:
        """Wait until every rank has come here."""
        self._dispatch.run("barrier", None, None, "sum", 0, algorithm, timeout)

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
        return self._dispatch.run_checked(
            "allgatherv", x, out, counts=counts, algorithm=algorithm, timeout=timeout
        )

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
        return self._dispatch.run_checked(
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
        return self._dispatch.run_checked(
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
        return self._dispatch.run_checked(
            "reduce_scatterv", x, out, op=op, counts=counts, algorithm=algorithm, timeout=timeout
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
        return self._dispatch.run_checked(
            "alltoallv", x, out, counts=send_counts, recv_counts=recv_counts,
            algorithm=algorithm, timeout=timeout,
        )  # fmt: skip
