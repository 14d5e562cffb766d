"""The collectives that return at once: the same names with an ``i`` in front.

Arguments are those of the blocking forms. The arrays belong to the call until its
`Request` has ended; ``wait()`` returns the result. A call makes progress whenever any
call of hpcoll waits or tests, in any communicator, or all the time with
``HPCOLL_PROGRESS=thread``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpcoll.dispatch import Dispatcher
from hpcoll.runtime.arrays import Array
from hpcoll.runtime.plan import Request
from hpcoll.schedule.ops import Op


class NonBlocking:
    """The started forms of all collectives."""

    _dispatch: Dispatcher

    def _start(self, name: str, x: object = None, out: Array | None = None, **rest: Any) -> Request:
        return self._dispatch.start(name, x, out, **rest)

    def iallreduce(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.allreduce`."""
        return self._start("allreduce", x, out, op=op, algorithm=algorithm, timeout=timeout)

    def ireduce(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.reduce`."""
        return self._start("reduce", x, out, op=op, root=root, algorithm=algorithm, timeout=timeout)

    def iscan(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.scan`."""
        return self._start("scan", x, out, op=op, algorithm=algorithm, timeout=timeout)

    def iexscan(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.exscan`."""
        return self._start("exscan", x, out, op=op, algorithm=algorithm, timeout=timeout)

    def ibroadcast(
        self,
        x: object,
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.broadcast`."""
        return self._start("broadcast", x, out, root=root, algorithm=algorithm, timeout=timeout)

    def iallgather(
        self,
        x: object,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.allgather`."""
        return self._start("allgather", x, out, algorithm=algorithm, timeout=timeout)

    def igather(
        self,
        x: object,
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.gather`."""
        return self._start("gather", x, out, root=root, algorithm=algorithm, timeout=timeout)

    def iscatter(
        self,
        x: object,
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.scatter`."""
        return self._start("scatter", x, out, root=root, algorithm=algorithm, timeout=timeout)

    def ireduce_scatter(
        self,
        x: object,
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.reduce_scatter`."""
        return self._start("reduce_scatter", x, out, op=op, algorithm=algorithm, timeout=timeout)

    def ialltoall(
        self,
        x: object,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.alltoall`."""
        return self._start("alltoall", x, out, algorithm=algorithm, timeout=timeout)

    def ibarrier(self, *, algorithm: str | None = None, timeout: float | None = None) -> Request:
        """Start `Communicator.barrier`."""
        return self._start("barrier", algorithm=algorithm, timeout=timeout)

    def iallgatherv(
        self,
        x: object,
        out: Array | None = None,
        counts: Sequence[int] | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.allgatherv`."""
        return self._start(
            "allgatherv", x, out, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def igatherv(
        self,
        x: object,
        out: Array | None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.gatherv`."""
        return self._start(
            "gatherv", x, out, root=root, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def iscatterv(
        self,
        x: object,
        counts: Sequence[int],
        out: Array | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.scatterv`."""
        return self._start(
            "scatterv", x, out, root=root, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def ireduce_scatterv(
        self,
        x: object,
        counts: Sequence[int],
        out: Array | None = None,
        op: str | Op = "sum",
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.reduce_scatterv`."""
        return self._start(
            "reduce_scatterv", x, out, op=op, counts=counts, algorithm=algorithm, timeout=timeout
        )

    def ialltoallv(
        self,
        x: object,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        out: Array | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Start `Communicator.alltoallv`."""
        return self._start(
            "alltoallv",
            x,
            out,
            recv_counts=recv_counts,
            counts=send_counts,
            algorithm=algorithm,
            timeout=timeout,
        )
