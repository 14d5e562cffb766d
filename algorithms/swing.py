"""Swing: peers near on one side, then a little farther on the other, and so on.

The rounds and bytes of halving and doubling over shorter distances: for rings and tori.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hpcoll.algorithms._pairs import Team
from hpcoll.algorithms._swinging import (
    Exchange,
    chunk_of_each,
    distances,
    doubling,
    exchanges,
    halving,
    order,
)
from hpcoll.schedule import (
    Problem,
    algorithm,
    fold,
    incoming,
    recv,
    recv_reduce,
    register,
    reversed_,
    send,
)

SOURCE = "De Sensi, Bonato, Saam, Hoefler 2024, arXiv:2401.09356"


@algorithm("allreduce", name="swing_latency", source=SOURCE)
def latency(p: Problem) -> Iterator[Any]:
    """Exchange everything, with the farthest first: whole groups meet, all bits are the same."""
    team = Team.of(p.size)
    me = team.member(p.rank)
    if me is None:
        yield send(p.rank + 1, 0)
        yield recv(p.rank + 1, 0)
        return
    if me < team.pairs:
        yield recv_reduce(p.rank - 1, 0, first=True)
    place = order(team.size).index
    for distance in distances(team.size):
        other = (me - distance if me % 2 else me + distance) % team.size
        peer = team.rank(other)
        yield send(peer, 0), recv_reduce(peer, 0, first=place(other) < place(me))
    if me < team.pairs:
        yield send(p.rank - 1, 0)


def _way(rank: int, blocks: Sequence[Sequence[int]]) -> list[Exchange]:
    """The exchanges of a rank; of an odd number, the last one trades blocks with each other."""
    if len(blocks) % 2 == 0:
        return exchanges(rank, blocks)
    last = len(blocks) - 1
    way = exchanges(rank, blocks[:last])
    way.insert(rank * len(way) // last, (last, blocks[rank], blocks[last]))  # not all at once
    return way


@algorithm("allgather", name="swing", source=SOURCE)
def allgather(p: Problem) -> Iterator[Any]:
    """The farthest peer first; of an odd number, the last rank trades blocks with each other."""
    swinging = range(p.size - p.size % 2)
    if p.rank in swinging:
        yield from doubling(_way(p.rank, p.blocks))
    elif swinging:
        yield send(swinging, *p.owned(p.rank)), [recv(r, *p.owned(r)) for r in swinging]


reduce_scatter = register(
    reversed_(allgather),
    name="swing",
    doc="Give the nearest peer what it and those that it meets later are to have.",
)


@algorithm("allreduce", name="swing", chunks=lambda p: p.size, source=SOURCE)
def allreduce(p: Problem) -> Iterator[Any]:
    """Reduce_scatter, then allgather, with chunks in an order that keeps messages in one piece."""
    swinging = range(p.size - p.size % 2)
    blocks = chunk_of_each(len(swinging)) + [(p.size - 1,)] * (p.size % 2)
    if p.rank in swinging:
        way = _way(p.rank, blocks)
        yield from halving(p.rank, way)
        yield from doubling(way)
    elif swinging:
        mine = blocks[p.rank]
        yield (
            [send(r, *blocks[r]) for r in swinging],
            fold(list(mine), [*map(incoming, swinging), list(mine)]),
        )
        yield send(swinging, *mine), [recv(r, *blocks[r]) for r in swinging]
