"""Split binary tree: half of the message down either side, then pairs exchange halves.

An inner rank passes on half as much as in a plain binary tree: for large messages and many
ranks.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, recv, send


@algorithm(
    "broadcast",
    name="split_binary",
    chunks=lambda p, *, segments: 2 * segments,
    source="Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0",
)
def broadcast(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """The same place on either side makes a pair; the root serves a rank that has none."""
    halves = [range(segments), range(segments, 2 * segments)]

    def rank(side: int, place: int) -> int:
        return (p.root + 1 + side + 2 * place) % p.size

    if p.rank == p.root:
        sides = range(min(2, p.size - 1))
        for k in range(segments):
            yield [send(rank(side, 0), halves[side][k]) for side in sides]
        if p.size % 2 == 0:
            yield send(rank(0, p.size // 2 - 1), *halves[1])
        return
    place, side = divmod((p.rank - p.root) % p.size - 1, 2)
    mine, other = halves[side], halves[1 - side]
    parent = rank(side, (place - 1) // 2) if place else p.root
    count = (p.size - side) // 2  # ranks on this side
    children = [rank(side, below) for below in (2 * place + 1, 2 * place + 2) if below < count]
    for k in range(segments + 1):
        yield (
            send(children, mine[k - 1]) if children and k else (),
            recv(parent, mine[k]) if k < segments else (),
        )
    if place < (p.size - 1) // 2:
        pair = rank(1 - side, place)
        yield send(pair, *mine), recv(pair, *other)
    else:
        yield recv(p.root, *other)
