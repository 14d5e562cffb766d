"""Chain: each rank waits for the one before it and serves the one after it.

In segments it is a pipeline, which moves a large message at the speed of one link.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hpcoll.schedule import Problem, algorithm, copy, fold, recv, recv_reduce, send, tmp

SOURCE = "Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0"


def cut(p: Problem, *, segments: int) -> int:
    """As many chunks as there are segments."""
    return segments


def travel(p: Problem, path: Sequence[int], total: int) -> Iterator[Any]:
    """Each chunk along a path of ranks, a slot behind the one before.

    What arrives is folded on the way, and the total from that position of the path on.
    """
    slots: defaultdict[int, list[Any]] = defaultdict(list)
    for hop, (source, target) in enumerate(pairwise(path)):
        if p.rank == source:
            for k in range(p.chunks):
                slots[hop + k].append(send(target, k))
        elif p.rank == target:
            for k in range(p.chunks):
                slots[hop + k].append(
                    recv_reduce(source, k, first=source < target)
                    if hop + 1 < total
                    else recv(source, k)
                )
    for _, step in sorted(slots.items()):
        yield step


@algorithm("broadcast", name="chain", chunks=cut, source=SOURCE)
def broadcast(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """From the root on, round the ranks."""
    yield from travel(p, [(p.root + k) % p.size for k in range(p.size)], total=0)


@algorithm("reduce", name="chain", chunks=cut, source=SOURCE)
def reduce(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """Round the ranks down to the root."""
    path = [(p.root - k) % p.size for k in range(1, p.size + 1)]
    if 0 < p.root < p.size - 1 and not p.commutes:
        # Rank order holds if each rank is next to those before it: from the root up, then
        # from below it down, and back to it.
        path = [*range(p.root, p.size), *range(p.root - 1, -1, -1), p.root]
    yield from travel(p, path, total=p.size)


@algorithm("allreduce", name="chain", chunks=cut, source=SOURCE)
def allreduce(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """Sums down to rank 0 and totals back up, which pass each other on the way."""
    yield from travel(p, [*range(p.size - 1, 0, -1), *range(p.size)], total=p.size)


@algorithm("scan", name="chain", source=SOURCE)
def scan(p: Problem) -> Iterator[Any]:
    """Add oneself to the prefix that arrives, and pass it on."""
    if p.rank > 0:
        yield recv_reduce(p.rank - 1, 0, first=True)
    if p.rank + 1 < p.size:
        yield send(p.rank + 1, 0)


@algorithm("exscan", name="chain", source=SOURCE)
def exscan(p: Problem) -> Iterator[Any]:
    """Keep the prefix that arrives, and pass it on with oneself added."""
    last = p.rank + 1 == p.size
    mine = tmp(0) if p.rank and not last else 0
    if mine != 0:
        # The prefix takes the place of one's own contribution, which is needed after it.
        yield copy(mine, 0)
    if p.rank > 0:
        yield recv(p.rank - 1, 0)
    if mine != 0:
        yield fold(mine, [0, mine])
    if not last:
        yield send(p.rank + 1, mine)
