"""Bine: binomial trees and butterflies over negabinary numbers, for shorter distances.

As many rounds and bytes as binomial trees, but peers are on both sides of a rank: less
crosses between groups of neighbours. An odd number of ranks is served as well.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

from hpcoll.algorithms._blocks import blocks
from hpcoll.algorithms._swinging import chunk_of_each, distances, doubling, exchanges, halving
from hpcoll.schedule import (
    Problem,
    algorithm,
    recv,
    recv_reduce,
    register,
    reversed_,
    send,
)

SOURCE = "De Sensi et al. 2025, doi:10.1145/3712285.3759835, arXiv:2508.17311"


@lru_cache(maxsize=8)
def children_of(size: int) -> list[list[int]]:
    """Whom each number serves, counted from the root, the largest subtree first."""
    even = size + size % 2
    found: dict[int, list[int]] = {0: []}
    for distance in distances(even):
        for number in list(found):
            child = (number - distance if number % 2 else number + distance) % even
            if child not in found:
                found[number].append(child)
                found[child] = []
    # An odd number of ranks does without the number that is reached last, a leaf.
    missing = list(found)[-1] if size % 2 else size
    return [
        [c - (c > missing) for c in found[n] if c != missing] for n in sorted(found) if n != missing
    ]


class Tree:
    """The place of one rank in the tree; children are listed largest subtree first."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.table = children_of(p.size)
        self.number = (p.rank - p.root) % p.size
        self.children = [self.rank(n) for n in self.table[self.number]]
        parents = [n for n, served in enumerate(self.table) if self.number in served]
        self.parent = self.rank(parents[0]) if parents else None

    def rank(self, number: int) -> int:
        """The rank of that number."""
        return (number + self.p.root) % self.p.size

    def blocks(self, rank: int) -> list[int]:
        """The chunks that the ranks of a subtree own."""
        numbers = [(rank - self.p.root) % self.p.size]
        for n in numbers:
            numbers += self.table[n]
        return sorted(blocks(self.p, map(self.rank, numbers)))


@algorithm("broadcast", name="bine", source=SOURCE)
def broadcast(p: Problem) -> Iterator[Any]:
    """The farthest child is served first."""
    tree = Tree(p)
    if tree.parent is not None:
        yield recv(tree.parent, 0)
    if tree.children:
        yield send(tree.children, 0)


@algorithm("reduce", name="bine", source=SOURCE)
def reduce(p: Problem) -> Iterator[Any]:
    """The nearest child is heard first."""
    tree = Tree(p)
    for child in reversed(tree.children):
        yield recv_reduce(child, 0, first=child < p.rank)
    if tree.parent is not None:
        yield send(tree.parent, 0)


@algorithm("scatter", name="bine", source=SOURCE)
def scatter(p: Problem) -> Iterator[Any]:
    """A subtree's blocks, in its ranks' order, travel in one message."""
    tree = Tree(p)
    if tree.parent is not None:
        yield recv(tree.parent, *tree.blocks(p.rank))
    if tree.children:
        yield [send(child, *tree.blocks(child)) for child in tree.children]


register(
    reversed_(scatter),
    name="bine",
    doc="A subtree's blocks, in its ranks' order, travel in one message.",
)


@algorithm("allgather", name="bine", source=SOURCE)
def allgather(p: Problem) -> Iterator[Any]:
    """The peers of Swing; of an odd number, the last rank's neighbour acts for it."""
    even, blocks = p.size - p.size % 2, list(p.blocks)
    lone, twin = even, even - 1
    if p.rank == lone:
        if even:
            yield send(twin, *blocks[lone])
            yield recv(twin, *chain(*blocks[:even]))
        return
    acts = p.rank == twin and even < p.size
    if acts:
        yield recv(lone, *blocks[lone])
    if even < p.size:
        blocks[twin:] = [blocks[twin] + blocks[lone]]
    yield from doubling(exchanges(p.rank, blocks))
    if acts:
        yield send(lone, *chain(*p.blocks[:even]))


reduce_scatter = register(
    reversed_(allgather),
    name="bine",
    doc="The peers of Swing; of an odd number, the last rank's neighbour acts for it.",
)


@algorithm("allreduce", name="bine", chunks=lambda p: max(1, p.size - p.size % 2), source=SOURCE)
def allreduce(p: Problem) -> Iterator[Any]:
    """Reduce_scatter, then allgather; of an odd number, the last rank's neighbour acts for it."""
    even, everything = p.size - p.size % 2, range(p.chunks)
    lone, twin = even, even - 1
    if p.rank == lone:
        if even:
            yield send(twin, *everything)
            yield recv(twin, *everything)
        return
    acts = p.rank == twin and even < p.size
    if acts:
        yield recv_reduce(lone, *everything)
    way = exchanges(p.rank, chunk_of_each(even))
    yield from halving(p.rank, way)
    yield from doubling(way)
    if acts:
        yield send(lone, *everything)
