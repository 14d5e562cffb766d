"""Double tree: two binary trees with half of the message each; a leaf of one is inner in the other.

So a rank sends one block and receives one at any time: full bandwidth at logarithmic
latency, for large messages and many ranks.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, recv, register, reversed_, send, sequence

SOURCE = "Sanders, Speck, Traeff 2009, doi:10.1016/j.parco.2009.09.001"

# The ranks but the root are numbered from 1. Number v is at position v of tree 0 and at
# v + 1 of tree 1, in order from left to right; the odd positions are the leaves. The root
# is at position 0, above both trees.


def parent(position: int, last: int) -> int:
    """The position above, in a tree whose last position is `last`."""
    low = position & -position
    above = (position ^ low) | 2 * low
    return above if above <= last else position ^ low


def children(position: int, tree: int, last: int) -> list[int]:
    """The positions below."""
    hops = [1 << k for k in range(last.bit_length())]
    found = [position + hop for hop in hops] + [position - hop for hop in hops]
    return [c for c in found if tree < c <= last and parent(c, last) == position]


def arrival(position: int, tree: int, size: int) -> int:
    """The slot in which the first block arrives; the others follow in every second slot.

    Of two children, one is served in the next slot and one in the slot after. Which is
    first alternates such that the slots left for two leaves in the other tree differ too.
    """
    last = size - 1 + tree
    above = parent(position, last)
    if not above:
        return tree
    before = arrival(above, tree, size)
    if position % 2:
        other = arrival(position + 1 - 2 * tree, 1 - tree, size)
        return before + 1 + (before + other) % 2
    cut = above + (above & -above) > last  # the right subtree is not whole
    left_first = tree == 1 or (cut and not last & 2)
    return before + (1 if left_first == (position < above) else 2)


@algorithm(
    "broadcast", name="double_tree", chunks=lambda p, *, segments: 2 * segments, source=SOURCE
)
def broadcast(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """The root serves the trees in turn, `segments` blocks each."""
    number = (p.rank - p.root) % p.size
    slots: defaultdict[int, list[Any]] = defaultdict(list)
    for tree in (0, 1):
        here, last = number and number + tree, p.size - 1 + tree
        blocks = range(tree * segments, (tree + 1) * segments)
        for child in children(here, tree, last):
            start, target = arrival(child, tree, p.size), (child - tree + p.root) % p.size
            for k, block in enumerate(blocks):
                slots[start + 2 * k].append(send(target, block))
        if number:
            start, above = arrival(here, tree, p.size), parent(here, last)
            source = (max(above - tree, 0) + p.root) % p.size
            for k, block in enumerate(blocks):
                slots[start + 2 * k].append(recv(source, block))
    for _, step in sorted(slots.items()):
        yield step


reduce = register(
    reversed_(broadcast),
    name="double_tree",
    doc="The broadcast backwards; keeps rank order if the root is the first or the last rank.",
)
register(
    sequence("allreduce", reduce, broadcast),
    name="double_tree",
    doc="Up both trees to rank 0, then down again.",
)
