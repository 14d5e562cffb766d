"""Bruck: few rounds at any number of ranks, for small messages."""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, copy, recv, send

SOURCE = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, doi:10.1109/71.642949"


@algorithm("allgather", name="bruck", source=SOURCE)
def allgather(p: Problem) -> Iterator[Any]:
    """Twice as many blocks each round: those of the ranks that follow one's own."""

    def blocks(first: int, count: int) -> list[int]:
        return [c for k in range(count) for c in p.owned((first + k) % p.size)]

    have = 1
    while have < p.size:
        count = min(have, p.size - have)
        left, right = (p.rank - have) % p.size, (p.rank + have) % p.size
        yield send(left, *blocks(p.rank, count)), recv(right, *blocks(right, count))
        have += count


def _radix(p: Problem, *, radix: int) -> str | None:
    return "radix must be 2 or more" if radix < 2 else None


@algorithm("alltoall", name="bruck", when=_radix, source=SOURCE)
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
