"""Peers that swing from side to side: how Swing and Bine spread blocks.

With peers (1 - (-2)^(s+1)) / 3 away, to the right of even ranks and to the left of odd
ones, the distances 1, 1, 3, 5, 11, ... are shorter than powers of two, for any even
number of ranks.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from hpcoll.schedule import recv, recv_reduce, send

Exchange = tuple[int, Sequence[int], Sequence[int]]


def distances(size: int) -> list[int]:
    """The signed distances to the peers of even ranks, the farthest first."""
    return [(1 - (-2) ** s) // 3 for s in range(max(size - 1, 0).bit_length(), 0, -1)]


@lru_cache(maxsize=8)
def _from_rank_0(size: int) -> list[tuple[int, list[int], list[int]]]:
    """Rank 0's exchanges: the distance to the peer, whose blocks it gives and whose it gets."""
    found = []
    held = {0: 0}  # for its order
    for distance in distances(size):
        pairs = [(h, (distance - h) % size) for h in held]
        give = [mine for mine, theirs in pairs if theirs not in held]
        get = [theirs for _, theirs in pairs if theirs not in held]
        found.append((distance, give, get))
        held |= dict.fromkeys(get, 0)
    return found


def exchanges(rank: int, blocks: Sequence[Sequence[int]]) -> list[Exchange]:
    """The peers of one of an even number of ranks, what each is given and what it gives.

    Even ranks do as rank 0, from where they are, and odd ones as its mirror image.
    """
    size = len(blocks)
    side = -1 if rank % 2 else 1
    turned = [*blocks[rank::side], *blocks[:rank:side]]
    return [
        (
            (rank + side * distance) % size,
            sorted([c for r in give for c in turned[r]]),
            sorted([c for r in get for c in turned[r]]),
        )
        for distance, give, get in _from_rank_0(size)
    ]


def order(size: int) -> list[int]:
    """Ranks in an order in which, for a power of two, each message is a run of blocks."""
    return [0, *[r for _, _, get in _from_rank_0(size) for r in get]]


def chunk_of_each(size: int) -> list[tuple[int]]:
    """The one chunk of each rank, numbered in that order."""
    found = [(0,)] * size
    for chunk, rank in enumerate(order(size)[:size]):
        found[rank] = (chunk,)
    return found


def halving(rank: int, way: Sequence[Exchange]) -> Iterator[Any]:
    """Reduce_scatter: the way backwards, away with what comes back later."""
    for peer, give, get in reversed(way):
        yield send(peer, *get), recv_reduce(peer, *give, first=peer < rank)


def doubling(way: Sequence[Exchange]) -> Iterator[Any]:
    """Allgather."""
    for peer, give, get in way:
        yield send(peer, *give), recv(peer, *get)
