"""Recursive halving: halve what one is responsible for with each exchange.

Partners are 1, 2, 4, ... away. With the nearest first, the ranks that a partial sum
stands for stay neighbours, which keeps their order.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._pairs import Team, power_below
from hpcoll.schedule import Problem, algorithm, recv, recv_reduce, send


@algorithm(
    "allreduce",
    name="recursive_halving_doubling",
    chunks=lambda p: power_below(p.size),
    source="Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1",
)
def allreduce(p: Problem) -> Iterator[Any]:
    """Halve down to one reduced chunk a rank, then go the same way back."""
    team = Team.of(p.size)
    me = team.member(p.rank)
    everything = range(p.chunks)
    if me is None:
        yield send(p.rank + 1, *everything)
        yield recv(p.rank + 1, *everything)
        return
    if me < team.pairs:
        yield recv_reduce(p.rank - 1, *everything, first=True)
    mine, way = everything, []
    for k in range(team.size.bit_length() - 1):
        half = len(mine) // 2
        keep, give = mine[:half], mine[half:]
        if me >> k & 1:
            keep, give = give, keep
        peer = team.rank(me ^ 1 << k)
        yield send(peer, *give), recv_reduce(peer, *keep, first=peer < p.rank)
        way.append((peer, keep, give))
        mine = keep
    for peer, keep, give in reversed(way):
        yield send(peer, *keep), recv(peer, *give)
    if me < team.pairs:
        yield send(p.rank - 1, *everything)


@algorithm(
    "reduce_scatter",
    name="recursive_halving",
    source="Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521",
)
def reduce_scatter(p: Problem) -> Iterator[Any]:
    """Farthest first, so that blocks are neighbours; nearest first where order matters."""
    team = Team.of(p.size)
    me = team.member(p.rank)
    if me is None:
        yield send(p.rank + 1, *range(p.chunks))
        yield recv(p.rank + 1, *p.owned(p.rank))
        return

    def share(member: int, bit: int) -> list[int]:
        """The blocks of the members that agree with one in the bits dealt with so far."""
        if p.commutes:
            first = member & -bit
            ranks = range(team.ranks(first).start, team.ranks(first + bit - 1).stop)
            return [c for r in ranks for c in p.owned(r)]
        members = range(member % (2 * bit), team.size, 2 * bit)
        return [c for m in members for r in team.ranks(m) for c in p.owned(r)]

    if me < team.pairs:
        yield recv_reduce(p.rank - 1, *range(p.chunks), first=True)
    bits = [1 << k for k in range(team.size.bit_length() - 1)]
    for bit in reversed(bits) if p.commutes else bits:
        other = me ^ bit
        peer = team.rank(other)
        yield (
            send(peer, *share(other, bit)),
            recv_reduce(peer, *share(me, bit), first=peer < p.rank),
        )
    if me < team.pairs:
        yield send(p.rank - 1, *p.owned(p.rank - 1))
