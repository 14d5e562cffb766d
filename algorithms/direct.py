"""Direct: each block goes straight from where it is to where it is wanted.

Peers are served in an order that starts after one's own rank, so that no rank is
wanted by two at once. What arrives is folded at once and in rank order.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, copy, fold, incoming, recv, send

LINEAR = "Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0"
SPREAD = "Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521"
SHOTS = "MSCCL++, arXiv:2504.09014 (all-pairs algorithms)"


def others(p: Problem) -> list[int]:
    """The other ranks, the right neighbour first."""
    return [(p.rank + k) % p.size for k in range(1, p.size)]


def gathered(p: Problem, *chunks: int) -> list[Any]:
    """Operands: the chunks of all ranks in rank order, one's own read in place."""
    return [list(chunks) if r == p.rank else incoming(r) for r in range(p.size)]


@algorithm("allreduce", name="one_shot", source=SHOTS)
def one_shot(p: Problem) -> Iterator[Any]:
    """Everyone sends all to all, and folds all: one fold, the same on every rank."""
    if p.size > 1:
        yield send(others(p), 0), fold(0, gathered(p, 0))


@algorithm("allreduce", name="two_shot", chunks=lambda p: p.size, source=SHOTS)
def two_shot(p: Problem) -> Iterator[Any]:
    """Each rank reduces one chunk for all, then hands it to all."""
    if p.size > 1:
        yield [send(r, r) for r in others(p)], fold(p.rank, gathered(p, p.rank))
        yield send(others(p), p.rank), [recv(r, r) for r in others(p)]


@algorithm("allgather", name="direct", source=LINEAR)
def allgather(p: Problem) -> Iterator[Any]:
    """One's own block to all."""
    mine = p.owned(p.rank)
    if p.size > 1:
        yield (
            send(others(p), *mine) if mine else (),
            [recv(r, *p.owned(r)) for r in others(p) if p.owned(r)],
        )


@algorithm("reduce_scatter", name="direct", source=LINEAR)
def reduce_scatter(p: Problem) -> Iterator[Any]:
    """One's share of each block to its owner, who folds once."""
    mine = p.owned(p.rank)
    if p.size > 1:
        yield (
            [send(r, *p.owned(r)) for r in others(p) if p.owned(r)],
            fold(list(mine), gathered(p, *mine)) if mine else (),
        )


@algorithm("alltoall", name="spread_out", source=SPREAD)
def alltoall(p: Problem) -> Iterator[Any]:
    """All messages are under way at once."""
    me = p.rank
    yield (
        [send(r, (me, r)) for r in others(p)],
        [recv(r, (r, me)) for r in reversed(others(p))],
        copy((me, me), (me, me)),
    )


@algorithm("alltoall", name="linear", source=LINEAR)
def linear(p: Problem, *, window: int = 8) -> Iterator[Any]:
    """No more than `window` messages are under way at once."""
    me = p.rank
    yield copy((me, me), (me, me))
    for first in range(1, p.size, window):
        distances = range(first, min(first + window, p.size))
        yield (
            [send(to, (me, to)) for k in distances for to in [(me + k) % p.size]],
            [recv(r, (r, me)) for k in distances for r in [(me - k) % p.size]],
        )


@algorithm("broadcast", name="direct", source=LINEAR)
def broadcast(p: Problem) -> Iterator[Any]:
    """The root to all."""
    if p.rank != p.root:
        yield recv(p.root, 0)
    elif p.size > 1:
        yield send(others(p), 0)


@algorithm("reduce", name="direct", source=LINEAR)
def reduce(p: Problem) -> Iterator[Any]:
    """All to the root, who folds once and in rank order, whichever rank it is."""
    if p.rank != p.root:
        yield send(p.root, 0)
    elif p.size > 1:
        yield fold(0, gathered(p, 0))


@algorithm("gather", name="direct", source=LINEAR)
def gather(p: Problem) -> Iterator[Any]:
    """All to the root."""
    if p.rank == p.root:
        yield [recv(r, *p.owned(r)) for r in others(p) if p.owned(r)]
    elif p.owned(p.rank):
        yield send(p.root, *p.owned(p.rank))


@algorithm("scatter", name="direct", source=LINEAR)
def scatter(p: Problem) -> Iterator[Any]:
    """The root to all, to each its own."""
    if p.rank == p.root:
        yield [send(r, *p.owned(r)) for r in others(p) if p.owned(r)]
    elif p.owned(p.rank):
        yield recv(p.root, *p.owned(p.rank))


@algorithm("scan", name="direct", source=LINEAR)
def scan(p: Problem) -> Iterator[Any]:
    """Each rank to all higher ones, who fold once."""
    yield (
        send(range(p.rank + 1, p.size), 0) if p.rank + 1 < p.size else (),
        fold(0, [*map(incoming, range(p.rank)), 0]) if p.rank else (),
    )


@algorithm("exscan", name="direct", source=LINEAR)
def exscan(p: Problem) -> Iterator[Any]:
    """As scan, without one's own."""
    yield (
        send(range(p.rank + 1, p.size), 0) if p.rank + 1 < p.size else (),
        fold(0, map(incoming, range(p.rank))) if p.rank else (),
    )


@algorithm("barrier", name="direct", source=LINEAR)
def barrier(p: Problem) -> Iterator[Any]:
    """A signal to all, and one from each."""
    if p.size > 1:
        yield send(others(p)), [recv(r) for r in others(p)]
