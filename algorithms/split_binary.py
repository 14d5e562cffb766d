"""Split binary tree: half of the message down either side, then pairs exchange halves.

An inner rank passes on half as much as in a plain binary tree: for large messages and many
ranks.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, recv, send

# Numbered from the root, the odd ranks are the left subtree and the even ones the right;
# numbers 1 and 2 are at the top, 3 and 5 below 1, 4 and 6 below 2. So the places in the two
# subtrees that are alike have neighbouring numbers, and these are the pairs.


@algorithm(
    "broadcast",
    name="split_binary",
    chunks=lambda p, *, segments: 2 * segments,
    source="Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0",
)
def broadcast(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """Each half in `segments` segments; the root is the pair of a rank that has none."""
    number = (p.rank - p.root) % p.size
    halves = [range(segments), range(segments, 2 * segments)]

    def rank(number: int) -> int:
        return (number + p.root) % p.size

    if not number:
        tops = [(rank(top), half) for top, half in zip((1, 2), halves, strict=True) if top < p.size]
        for k in range(segments):
            yield [send(top, half[k]) for top, half in tops]
        if p.size % 2 == 0:
            yield send(rank(p.size - 1), *halves[1])
        return
    odd = number % 2
    mine, other = halves if odd else reversed(halves)
    parent = rank((number - 1 + odd) // 4 * 2 - odd + (number > 2) ...)
