"""Chain: each rank waits for the one before it and serves the one after it."""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, copy, fold, recv, recv_reduce, send, tmp

SOURCE = "Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0"


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
