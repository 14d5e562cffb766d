"""Circulant: distances found by halving p, rounded up, until 1 is left.

As few rounds as Bruck and as few bytes as a ring at any number of ranks, also for
blocks of unequal sizes.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hpcoll.algorithms._blocks import blocks
from hpcoll.schedule import Problem, algorithm, recv, register, reversed_, send, sequence

SOURCE = "Traeff 2024, arXiv:2410.14234"


def skips(size: int) -> list[int]:
    """The distances, nearest first; the last is the number of ranks itself."""
    found = [size]
    while found[-1] > 1:
        found.append((found[-1] + 1) // 2)
    return found[::-1]


@algorithm("allgather", name="circulant", source=SOURCE)
def allgather(p: Problem) -> Iterator[Any]:
    """With each distance, hold the blocks of as many ranks from one's own on as the next."""
    for near, far in pairwise(skips(p.size)):
        yield (
            send((p.rank - near) % p.size, *blocks(p, range(p.rank, p.rank + far - near))),
            recv((p.rank + near) % p.size, *blocks(p, range(p.rank + near, p.rank + far))),
        )


reduce_scatter = register(
    reversed_(allgather),
    name="circulant",
    doc="Give away the farther half of the partial sums, then half of what is left.",
)
register(
    sequence("allreduce", reduce_scatter, allgather),
    name="circulant",
    doc="Reduce_scatter, then allgather, over the same distances.",
)
