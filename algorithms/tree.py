"""Binomial tree: whoever has the data passes it on, so the informed ranks double.

Ranks are numbered from the root; number v has the subtree of v .. v + span(v) - 1.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.schedule import Problem, algorithm, recv, recv_reduce, send

SOURCE = "Chan, Heimlich, Purkayastha, van de Geijn 2007, doi:10.1002/cpe.1206"


class Tree:
    """The place of one rank in the tree; children are listed smallest subtree first.

    With a radix above 2 the tree is k-nomial: a rank has radix - 1 children of each size.
    """

    def __init__(self, p: Problem, root: int, radix: int = 2) -> None:
        self.p, self.root, self.radix = p, root, radix
        self.number = (p.rank - root) % p.size
        span = self.span(self.number)
        self.parent = self.rank(self.number - self.number % (span * radix))
        sizes = [radix**k for k in range(p.size.bit_length()) if radix**k < span]
        self.levels = [
            [self.rank(n) for d in range(1, radix) if (n := self.number + d * size) < p.size]
            for size in sizes
        ]
        self.children = [child for level in self.levels for child in level]

    def span(self, number: int) -> int:
        """The size of the subtree of a number, where all ranks are there."""
        span = 1
        while span < self.p.size and number % (span * self.radix) == 0:
            span *= self.radix
        return span

    def rank(self, number: int) -> int:
        """The rank of that number."""
        return (number + self.root) % self.p.size

    def blocks(self, rank: int) -> list[int]:
        """The chunks that the ranks of a subtree own."""
        first = (rank - self.root) % self.p.size
        end = min(first + self.span(first), self.p.size)
        return [c for n in range(first, end) for c in self.p.owned(self.rank(n))]


@algorithm("broadcast", name="binomial", source=SOURCE)
def broadcast(p: Problem) -> Iterator[Any]:
    """The largest subtree is served first."""
    tree = Tree(p, p.root)
    if tree.number:
        yield recv(tree.parent, 0)
    if tree.children:
        yield send(reversed(tree.children), 0)


@algorithm("reduce", name="binomial", source=SOURCE)
def reduce(p: Problem) -> Iterator[Any]:
    """A subtree is a run of ranks: rank order holds if the root of the tree is rank 0."""
    tree = Tree(p, p.root if p.commutes else 0)
    for child in tree.children:
        yield recv_reduce(child, 0)
    if tree.number:
        yield send(tree.parent, 0)
    if tree.root != p.root:
        if p.rank == tree.root:
            yield send(p.root, 0)
        elif p.rank == p.root:
            yield recv(tree.root, 0)


@algorithm("gather", name="binomial", source=SOURCE)
def gather(p: Problem) -> Iterator[Any]:
    """A subtree's blocks travel in one message."""
    tree = Tree(p, p.root)
    if tree.children:
        yield [recv(child, *tree.blocks(child)) for child in tree.children]
    if tree.number:
        yield send(tree.parent, *tree.blocks(p.rank))


@algorithm("scatter", name="binomial", source=SOURCE)
def scatter(p: Problem) -> Iterator[Any]:
    """The largest subtree is served first."""
    tree = Tree(p, p.root)
    if tree.number:
        yield recv(tree.parent, *tree.blocks(p.rank))
    if tree.children:
        yield [send(child, *tree.blocks(child)) for child in reversed(tree.children)]
