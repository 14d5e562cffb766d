"""Neighbour exchange: swap with the two neighbours in turn, two blocks at a time.

Half the rounds of a ring, and like it only between neighbours: for large messages.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._blocks import blocks
from hpcoll.schedule import Problem, algorithm, recv, send


def _even(p: Problem) -> str | None:
    odd = p.size % 2 and p.size > 1
    return "pairs up an even number of ranks: use ring or circulant" if odd else None


@algorithm(
    "allgather",
    name="neighbor_exchange",
    when=_even,
    source="Chen, Zhang, Zhang, Yuan 2005, doi:10.1109/HPCASIA.2005.75",
)
def allgather(p: Problem) -> Iterator[Any]:
    """First one's own block, then always the two that came last: from left and right in turn."""
    if p.size == 1:
        return
    side = -1 if p.rank % 2 else 1
    pair = p.rank - p.rank % 2
    partner = p.rank + side
    yield send(partner, *p.owned(p.rank)), recv(partner, *p.owned(partner))
    held = pair
    for k in range(1, p.size // 2):
        side = -side
        peer = (p.rank + side) % p.size
        came = pair + side * 2 * ((k + 1) // 2)
        yield send(peer, *blocks(p, (held, held + 1))), recv(peer, *blocks(p, (came, came + 1)))
        held = came
