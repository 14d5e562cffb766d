"""3-2 elimination: halving and doubling where three ranks, if need be, act as two.

Whenever an odd number of ranks share a part of the message, three of them leave two: at
any number of ranks fewer bytes than if a whole message is first folded to the neighbour.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hpcoll.algorithms._pairs import power_below
from hpcoll.schedule import Problem, algorithm, recv, recv_reduce, send


@algorithm(
    "allreduce",
    name="elimination",
    chunks=lambda p: power_below(p.size),
    source="Rabenseifner, Traeff 2004, doi:10.1007/978-3-540-30218-6_13",
)
def allreduce(p: Problem) -> Iterator[Any]:
    """Halve down to one reduced chunk a rank, then go the same way back."""
    yield from _reduced(p.rank, range(p.size), range(p.chunks))


def _reduced(rank: int, ranks: Sequence[int], chunks: Sequence[int]) -> Iterator[Any]:
    """Reduce chunks over ranks, of which this is one, and hand the result to all of them."""
    if len(ranks) == 1:
        return
    at, odd, half = ranks.index(rank), len(ranks) % 2, len(chunks) // 2
    if odd and at < 3:
        yield from _three(rank, ranks, chunks[:half], chunks[half:])
        return
    upper = (at - odd) % 2
    peer = ranks[at - 1 if upper else at + 1]
    keep, give = chunks[:half], chunks[half:]
    if upper:
        keep, give = give, keep
    yield send(peer, *give), recv_reduce(peer, *keep, first=peer < rank)
    yield from _reduced(rank, _keepers(ranks, upper), keep)
    yield send(peer, *keep), recv(peer, *give)


def _three(
    rank: int, ranks: Sequence[int], low: Sequence[int], high: Sequence[int]
) -> Iterator[Any]:
    """The first and the second keep a half each, in one round more than a pair.

    The first joins in the second round: it may be the one who is a round late already.
    """
    first, second, third = ranks[:3]
    if rank == first:
        yield send(second, *high), recv_reduce(third, *low)
        yield from _reduced(rank, _keepers(ranks, 0), low)
        yield send(third, *low), recv(second, *high)
    elif rank == second:
        yield send(third, *low), recv_reduce(third, *high)
        yield recv_reduce(first, *high, first=True)
        yield from _reduced(rank, _keepers(ranks, 1), high)
        yield send(first, *high)
        yield send(third, *high), recv(third, *low)
    else:
        yield send(second, *high), recv_reduce(second, *low, first=True)
        yield send(first, *low)
        yield recv(first, *low)
        yield send(second, *low), recv(second, *high)


def _keepers(ranks: Sequence[int], upper: int) -> Sequence[int]:
    """Those who keep the lower or the upper half, one of three before those of pairs."""
    if len(ranks) % 2:
        return [ranks[upper], *ranks[3 + upper :: 2]]
    return ranks[upper::2]
