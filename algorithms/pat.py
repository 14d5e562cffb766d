"""PAT, parallel aggregated trees: Bruck with the far distances first, in bounded messages.

Each block travels its own binomial tree; the trees of all ranks run at once, and so do
as many subtrees of each as `aggregate` allows: few rounds for small messages, small
buffers for large ones.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._blocks import blocks
from hpcoll.schedule import Problem, algorithm, recv, register, reversed_, send

SOURCE = "Jeaugey 2025, arXiv:2506.20252"


def hop(p: Problem, distance: int, offset: int, every: int) -> tuple[Any, ...]:
    """One step: the blocks that are `offset`, `offset + every`, ... from their owners go on."""
    below, span = p.rank - distance, p.size - distance
    return (
        send(
            (p.rank + distance) % p.size,
            *blocks(p, range(p.rank - offset, p.rank - span, -every)),
        ),
        recv(below % p.size, *blocks(p, range(below - offset, below - span, -every))),
    )


def subtree(offset: int, span: int) -> Iterator[tuple[int, int]]:
    """The hops to the offsets from `offset` up to `span` further on: how far, and from where.

    Far ones come first, and each subtree is done before the next: few blocks wait.
    """
    while span > 1:
        span //= 2
        yield span, offset
        yield from subtree(offset + span, span)


def _aggregate(p: Problem, *, aggregate: int) -> str | None:
    return "aggregate must be a power of two" if aggregate & (aggregate - 1) else None


@algorithm("allgather", name="pat", when=_aggregate, source=SOURCE)
def allgather(p: Problem, *, aggregate: int = 65536) -> Iterator[Any]:
    """Far hops while messages grow to `aggregate` blocks, then subtree by subtree."""
    far = 1 << (p.size - 1).bit_length()
    trees = 1
    while trees < aggregate and far > 1:
        yield hop(p, far // 2, 0, far)
        far, trees = far // 2, trees * 2
    for distance, offset in subtree(0, far):
        if offset + distance < p.size:
            yield hop(p, distance, offset, far)


register(
    reversed_(allgather),
    name="pat",
    doc="Partial sums go up the trees: subtree by subtree, then far hops in ever smaller messages.",
)
