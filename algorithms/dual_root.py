"""Dual root: two trees, one over each half of the ranks, whose roots exchange what they have.

Blocks go up and results come down at the same time, between parent and child in the same
step: for large messages and operators that don't commute.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, recv, recv_reduce, send


@algorithm(
    "allreduce",
    name="dual_root",
    chunks=lambda p, *, segments: segments,
    source="Traeff 2021, arXiv:2109.12626",
)
def allreduce(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """A rank deals with its near child, its far child and its parent in turn."""
    if p.size == 1:
        return
    # A subtree is a run of ranks with its root at the end: those of the far child, those
    # of the near one, the root. A block is at the roots in slot 0, below them earlier on
    # its way up and later on its way down.
    half = p.size // 2
    first, node, parent = 0, half - 1, p.size - 1
    if p.rank >= half:
        first, node, parent = half, parent, node
    top, up, down = True, 0, 0
    while node != p.rank:
        middle = (first + node) // 2
        near = p.rank >= middle
        turn = 1 if near else 2
        top, parent, up, down = False, node, up + turn - 3, down + turn
        first, node = (middle, node - 1) if near else (first, middle - 1)
    middle = (first + node) // 2
    children = [(1, node - 1)] * (first < node) + [(2, middle - 1)] * (first < middle)
    slots: defaultdict[int, list[Any]] = defaultdict(list)
    for block in range(segments):
        now = 3 * block
        for turn, child in children:
            slots[now + up + turn - 3].append(recv_reduce(child, block, first=True))
            slots[now + down + turn].append(send(child, block))
        slots[now + up].append(send(parent, block))
        slots[now + down].append(
            recv_reduce(parent, block, first=parent < node) if top else recv(parent, block)
        )
    for _, step in sorted(slots.items()):
        yield step
