"""k-nomial tree: a binomial tree whose ranks serve radix - 1 children at each level.

Fewer levels for more messages a level: for links that are slow to start, and many of them.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._radix import at_least_two
from hpcoll.algorithms.tree import Tree
from hpcoll.schedule import Problem, algorithm, fold, incoming, recv, send

SOURCE = "Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0"


@algorithm("broadcast", name="knomial", when=at_least_two, source=SOURCE)
def broadcast(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """The largest subtrees are served first."""
    tree = Tree(p, p.root, radix)
    if tree.number:
        yield recv(tree.parent, 0)
    if tree.children:
        yield send([child for level in reversed(tree.levels) for child in level], 0)


@algorithm("reduce", name="knomial", when=at_least_two, source=SOURCE)
def reduce(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """All children of a level are folded at once; the tree's root is 0 where order matters."""
    tree = Tree(p, p.root if p.commutes else 0, radix)
    for level in filter(None, tree.levels):
        yield fold(0, [0, *map(incoming, level)])
    if tree.number:
        yield send(tree.parent, 0)
    if tree.root != p.root:
        if p.rank == tree.root:
            yield send(p.root, 0)
        elif p.rank == p.root:
            yield recv(tree.root, 0)


@algorithm("gather", name="knomial", when=at_least_two, source=SOURCE)
def gather(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """A subtree's blocks travel in one message."""
    tree = Tree(p, p.root, radix)
    if tree.children:
        yield [recv(child, *tree.blocks(child)) for child in tree.children]
    if tree.number:
        yield send(tree.parent, *tree.blocks(p.rank))


@algorithm("scatter", name="knomial", when=at_least_two, source=SOURCE)
def scatter(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """The largest subtrees are served first."""
    tree = Tree(p, p.root, radix)
    if tree.number:
        yield recv(tree.parent, *tree.blocks(p.rank))
    if tree.children:
        largest = [child for level in reversed(tree.levels) for child in level]
        yield [send(child, *tree.blocks(child)) for child in largest]
