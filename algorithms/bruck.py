"""Bruck: few rounds at any number of ranks, for small messages."""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._blocks import blocks
from hpcoll.algorithms._radix import at_least_two
from hpcoll.schedule import Problem, algorithm, copy, recv, send

SOURCE = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, doi:10.1109/71.642949"


@algorithm("allgather", name="bruck", when=at_least_two, source=SOURCE)
def allgather(p: Problem, *, radix: int = 2) -> Iterator[Any]:
    """`radix` times as many blocks each round: those of the ranks that follow one's own."""
    have = 1
    while have < p.size:
        hops = range(have, min(radix * have, p.size), have)
        yield (
            [
                send((p.rank - hop) % p.size, *blocks(p, range(p.rank, p.rank + count)))
                for hop in hops
                for count in [min(have, p.size - hop)]
            ],
            [
                recv(source % p.size, *blocks(p, range(source, source + count)))
                for hop in hops
                for source, count in [(p.rank + hop, min(have, p.size - hop))]
            ],
        )
        have *= radix


@algorithm("alltoall", name="bruck", when=at_least_two, source=SOURCE)
def alltoall(p: Problem, *, radix: int = 2) -> Iterator[Any]:
    """A chunk travels the digits of its distance, lowest first, relayed on its way."""

    def leaving(rank: int, place: int, digit: int) -> list[tuple[int, int]]:
        """What `rank` sends on by that digit; the lower digits have been travelled."""
        distances = [d for d in range(p.size) if d // place % radix == digit]
        sources = [((rank - d % place) % p.size, d) for d in distances]
        return [(s, (s + d) % p.size) for s, d in sources]

    yield copy((p.rank, p.rank), (p.rank, p.rank))
    place = 1
    while place < p.size:
        hops = [(h, h * place) for h in range(1, radix) if h * place < p.size]
        yield (
            [send((p.rank + n) % p.size, *leaving(p.rank, place, h)) for h, n in hops],
            [
                recv(source, *leaving(source, place, h))
                for h, n in hops
                for source in [(p.rank - n) % p.size]
            ],
        )
        place *= radix
