"""K-nomial tree: each round multiplies by `radix` how many ranks have the data.

Fewer levels than the binomial tree (radix 2), with more children each: for small messages,
where several can be sent at nearly the price of one.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._blocks import blocks
from hpcoll.algorithms._radix import at_least_two
from hpcoll.schedule import (
    Problem,
    algorithm,
    fold,
    incoming,
    recv,
    register,
    reversed_,
    send,
)

SOURCE = "Wilkins et al. 2023, doi:10.1109/CLUSTER52292.2023.00013"


class Tree:
    """The place of one rank; number v has the subtree of v .. v + place - 1.

    Ranks are numbered from the root, and place is that of the lowest digit of v but 0.
    """

    def __init__(self, p: Problem, root: int, radix: int) -> None:
        self.root, self.size = root, p.size
        self.number, place = (p.rank - root) % p.size, 1
        levels: list[tuple[int, range]] = []
        while place < p.size and not self.number // place % radix:
            end = min(self.number + radix * place, p.size)
            levels.append((place, range(self.number + place, end, place)))
            place *= radix
        self.place = place
        self.parent = self.rank(self.number - self.number // place % radix * place)
        self.levels = [(place, [self.rank(v) for v in numbers]) for place, numbers in levels]

    def rank(self, number: int) -> int:
        """The rank of that number."""
        return (number + self.root) % self.size

    def span(self, rank: int, place: int) -> range:
        """The ranks of a subtree, which count on past the last."""
        first = (rank - self.root) % self.size
        return range(first + self.root, min(first + place, self.size) + self.root)


@algorithm("broadcast", name="knomial", when=at_least_two, source=SOURCE)
def broadcast(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """The largest subtrees are served first."""
    tree = Tree(p, p.root, radix)
    if tree.number:
        yield recv(tree.parent, 0)
    if tree.levels:
        yield [send(children, 0) for _, children in reversed(tree.levels)]


@algorithm("reduce", name="knomial", when=at_least_two, source=SOURCE)
def reduce(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """A level is folded at once; rank order holds if the root of the tree is rank 0."""
    tree = Tree(p, p.root if p.commutes else 0, radix)
    for _, children in tree.levels:
        yield fold(0, [0, *map(incoming, children)])
    if tree.number:
        yield send(tree.parent, 0)
    if tree.root != p.root:
        if p.rank == tree.root:
            yield send(p.root, 0)
        elif p.rank == p.root:
            yield recv(tree.root, 0)


@algorithm("scatter", name="knomial", when=at_least_two, source=SOURCE)
def scatter(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """A subtree's blocks travel in one message; the largest subtrees are served first."""
    tree = Tree(p, p.root, radix)
    if tree.number:
        yield recv(tree.parent, *blocks(p, tree.span(p.rank, tree.place)))
    if tree.levels:
        yield [
            send(child, *blocks(p, tree.span(child, place)))
            for place, children in reversed(tree.levels)
            for child in children
        ]


register(reversed_(scatter), name="knomial", doc="A subtree's blocks travel in one message.")
