"""Ring: everything travels to the right neighbour, one block a step.

Moves the least bytes and keeps every link busy; takes 2(p-1) steps for allreduce.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, mirrored, recv, recv_reduce, register, send

SOURCE = "Patarasuk, Yuan 2009, doi:10.1016/j.jpdc.2008.09.002"


@algorithm("allreduce", name="ring", chunks=lambda p: p.size, source=SOURCE)
def allreduce(p: Problem) -> Iterator[Any]:
    """Pass partial sums, then totals, to the right neighbour."""
    left, right = (p.rank - 1) % p.size, (p.rank + 1) % p.size
    for k in range(p.size - 1):
        yield (
            send(right, (p.rank - k) % p.size),
            recv_reduce(left, (p.rank - k - 1) % p.size, first=True),
        )
    for k in range(p.size - 1):
        yield send(right, (p.rank - k + 1) % p.size), recv(left, (p.rank - k) % p.size)


@algorithm("reduce_scatter", name="ring", source=SOURCE)
def reduce_scatter(p: Problem) -> Iterator[Any]:
    """Each block's partial sum goes round once and ends at its owner."""
    left, right = (p.rank - 1) % p.size, (p.rank + 1) % p.size
    for k in range(1, p.size):
        yield (
            send(right, *p.owned((p.rank - k) % p.size)),
            recv_reduce(left, *p.owned((p.rank - k - 1) % p.size), first=True),
        )


@algorithm("allgather", name="ring", source=SOURCE)
def allgather(p: Problem) -> Iterator[Any]:
    """Pass on the block that arrived last."""
    left, right = (p.rank - 1) % p.size, (p.rank + 1) % p.size
    for k in range(p.size - 1):
        yield (
            send(right, *p.owned((p.rank - k) % p.size)),
            recv(left, *p.owned((p.rank - k - 1) % p.size)),
        )


for ring in (allreduce, reduce_scatter, allgather):
    register(
        mirrored(ring),
        name="bidirectional_ring",
        doc="Two rings in opposite directions, each with half of the message.",
    )
