"""Pairwise exchange: with one partner after the other, everyone busy in each step."""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._pairs import power_below
from hpcoll.schedule import Problem, algorithm, copy, recv, recv_reduce, send

SOURCE = "Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521"


@algorithm("alltoall", name="pairwise", source=SOURCE)
def alltoall(p: Problem) -> Iterator[Any]:
    """True pairs at a power of two, and so right in place; else a rotation."""
    me = p.rank
    yield copy((me, me), (me, me))
    for k in range(1, p.size):
        to, source = (me + k) % p.size, (me - k) % p.size
        if p.size == power_below(p.size):
            to = source = me ^ k
        yield send(to, (me, to)), recv(source, (source, me))


@algorithm("reduce_scatter", name="pairwise", source=SOURCE)
def reduce_scatter(p: Problem) -> Iterator[Any]:
    """The lower ranks' shares arrive next first, then the higher ranks', last first."""
    for k in range(1, p.size):
        to, source = (p.rank + k) % p.size, (p.rank - k) % p.size
        yield (
            send(to, *p.owned(to)) if p.owned(to) else (),
            recv_reduce(source, *p.owned(p.rank), first=source < p.rank) if p.owned(p.rank) else (),
        )
