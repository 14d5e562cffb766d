"""Hierarchical algorithms: one algorithm inside the nodes, another between them.

Two shapes. On *rails*, the ranks of the same number in each node form a rail, the
message is spread over the ranks of a node and each rail moves its share between the
nodes: for large messages. With *leaders*, one rank a node speaks for all: for small
ones. Nodes need not be of one size (there are as many rails as the smallest node has
ranks) and their ranks may lie in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import lcm
from typing import Any, TypeAlias

from hpcoll.errors import RegistryError
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.combinators import Part, ask, bundles, combined, with_tunables
from hpcoll.schedule.operations import recv, send
from hpcoll.schedule.parts import part
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.registry import registered

Groups: TypeAlias = "Callable[..., tuple[tuple[int, ...], ...]]"
Pairs: TypeAlias = "dict[tuple[int, int], tuple[tuple[int, int], ...]]"


def by_node(p: Problem) -> tuple[tuple[int, ...], ...]:
    """The ranks of each node."""
    return p.nodes


class _Grid:
    """Where one rank is: which node, which rail."""

    def __init__(self, p: Problem, groups: tuple[tuple[int, ...], ...]) -> None:
        self.groups = groups
        self.rails = min(map(len, groups))
        self.node_of = {r: n for n, group in enumerate(groups) for r in group}
        self.node = self.node_of[p.rank]
        self.group = groups[self.node]
        self.local = self.group.index(p.rank)

    def rail_of(self, rank: int) -> int:
        """The rail that serves a rank; its own where it has one."""
        return self.groups[self.node_of[rank]].index(rank) % self.rails

    def rail(self) -> list[int]:
        """The ranks of this rank's rail, one a node."""
        return [group[self.local] for group in self.groups]

    def served(self) -> tuple[int, ...]:
        """The ranks of the node that have no rail of their own and use this rank's."""
        return self.group[self.local + self.rails :: self.rails]

    @property
    def on_rail(self) -> bool:
        """Whether this rank has a rail, or is one too many in its node."""
        return self.local < self.rails


def rails(
    collective: str, *, intra: Part | tuple[Part, Part], inter: Part, groups: Groups = by_node
) -> Algorithm:
    """Spread the message over the ranks of a node; each rail moves its share between nodes.

    Parameters
    ----------
    collective : str
        allreduce, reduce_scatter, allgather, broadcast or alltoall.
    intra : Algorithm or pair of them
        What runs inside the nodes: for allreduce a reduce_scatter and an allgather,
        for broadcast a scatter and an allgather, else one of the same collective.
    inter : Algorithm
        What runs between them, of the same collective.
    groups : callable
        ``groups(p)``, with tunables as keywords: the ranks of each node.
    """
    pair = tuple(map(registered, intra if isinstance(intra, tuple) else (intra,)))
    outer = registered(inter)
    shapes = {
        "allreduce": _allreduce,
        "broadcast": _broadcast,
        "reduce_scatter": _reduce_scatter,
        "allgather": _allgather,
        "alltoall": _alltoall,
    }
    if collective not in shapes:
        raise RegistryError(f"no rails for {collective}: only for {', '.join(shapes)}")

    def run(p: Problem, **tunables: int) -> Iterator[Any]:
        inside = [with_tunables(a, tunables) for a in pair]
        grid = _Grid(p, ask(groups, p, tunables))
        yield from shapes[collective](p, grid, inside, with_tunables(outer, tunables))

    def chunks(p: Problem, **tunables: int) -> int:
        if collective in ("allreduce", "broadcast"):
            found = ask(groups, p, tunables)
            each = with_tunables(outer, tunables).problem(0, len(found)).chunks
            return min(map(len, found)) * each
        return p.size

    def when(p: Problem, **tunables: int) -> str | None:
        found = ask(groups, p, tunables)
        asked = [(a, len(group)) for a in pair for group in found] + [(outer, len(found))]
        return _first_refusal(asked, tunables)

    return combined("rails", collective, run, (*pair, outer), chunks, when, groups)


def leaders(
    collective: str,
    *,
    reduce: Part | None = None,
    inter: Part,
    broadcast: Part | None = None,
    groups: Groups = by_node,
) -> Algorithm:
    """One rank a node speaks for all: the root in its own node, else the lowest.

    Parameters
    ----------
    collective : str
        allreduce, reduce, broadcast or barrier.
    reduce, broadcast : Algorithm
        What collects in the nodes first and spreads in them last; a reduce needs no
        broadcast, a broadcast no reduce.
    inter : Algorithm
        What runs between the leaders, of the same collective.
    groups : callable
        ``groups(p)``, with tunables as keywords: the ranks of each node.
    """
    needed = {
        "allreduce": (True, True),
        "reduce": (True, False),
        "broadcast": (False, True),
        "barrier": (True, True),
    }
    if collective not in needed:
        raise RegistryError(f"no leaders for {collective}: only for {', '.join(needed)}")
    if (reduce is not None, broadcast is not None) != needed[collective]:
        parts = [w for w, n in zip(("reduce", "broadcast"), needed[collective], strict=True) if n]
        raise RegistryError(f"leaders of {collective} need, beside inter: {', '.join(parts)}")
    stages = [
        (registered(a), between)
        for a, between in ((reduce, False), (inter, True), (broadcast, False))
        if a is not None
    ]

    def run(p: Problem, **tunables: int) -> Iterator[Any]:
        found = ask(groups, p, tunables)
        rooted = collective in ("reduce", "broadcast")
        chiefs = [p.root if rooted and p.root in group else group[0] for group in found]
        node = next(n for n, group in enumerate(found) if p.rank in group)
        inside, chief = found[node], found[node].index(chiefs[node])
        root = next(n for n, group in enumerate(found) if p.root in group)
        for a, between in stages:
            if between and p.rank != chiefs[node]:
                continue
            ranks = chiefs if between else inside
            algorithm = with_tunables(a, tunables)
            count = algorithm.problem(0, len(ranks)).chunks
            # A barrier's parts move no data: what is left of their messages are signals.
            ids = bundles(() if collective == "barrier" else range(p.chunks), count)
            sub = p.sub(
                ranks, collective=a.collective, chunk_ids=ids, root=root if between else chief
            )
            yield from part(algorithm.generate(sub), sub)

    def chunks(p: Problem, **tunables: int) -> int:
        if collective == "barrier":
            return 1
        found = ask(groups, p, tunables)
        sizes = [(a, n) for a, between in stages for n in _sizes(between, found)]
        return lcm(*(with_tunables(a, tunables).problem(0, n).chunks or 1 for a, n in sizes))

    def when(p: Problem, **tunables: int) -> str | None:
        found = ask(groups, p, tunables)
        asked = [(a, n) for a, between in stages for n in _sizes(between, found)]
        return _first_refusal(asked, tunables)

    return combined("leaders", collective, run, [a for a, _ in stages], chunks, when, groups)


def _sizes(between: bool, groups: tuple[tuple[int, ...], ...]) -> list[int]:
    return [len(groups)] if between else sorted({len(group) for group in groups})


def _first_refusal(asked: list[tuple[Algorithm, int]], tunables: dict[str, int]) -> str | None:
    for a, size in asked:
        algorithm = with_tunables(a, tunables)
        reason = algorithm.refuses(algorithm.problem(0, size))
        if reason is not None:
            return f"{algorithm.full_name} on {size} of the ranks: {reason}"
    return None


def _some(step: list[Any]) -> Iterator[Any]:
    """A step, unless it is empty."""
    if step:
        yield step


def _allreduce(p: Problem, grid: _Grid, inside: list[Algorithm], outer: Algorithm) -> Iterator[Any]:
    scatter, gather = inside
    each = p.chunks // grid.rails
    owners = [c // each for c in range(p.chunks)]
    sub = p.sub(grid.group, owners, collective="reduce_scatter")
    yield from part(scatter.generate(sub), sub)
    if grid.on_rail:
        mine = range(grid.local * each, (grid.local + 1) * each)
        rail = p.sub(grid.rail(), chunk_ids=mine)
        yield from part(outer.generate(rail), rail)
    sub = p.sub(grid.group, owners, collective="allgather")
    yield from part(gather.generate(sub), sub)


def _broadcast(p: Problem, grid: _Grid, inside: list[Algorithm], outer: Algorithm) -> Iterator[Any]:
    scatter, gather = inside
    each = p.chunks // grid.rails
    owners = [c // each for c in range(p.chunks)]
    if p.root in grid.group:
        root = grid.group.index(p.root)
        sub = p.sub(grid.group, owners, collective="scatter", root=root)
        yield from part(scatter.generate(sub), sub)
    if grid.on_rail:
        mine = range(grid.local * each, (grid.local + 1) * each)
        rail = p.sub(grid.rail(), chunk_ids=mine, root=grid.node_of[p.root])
        yield from part(outer.generate(rail), rail)
    sub = p.sub(grid.group, owners, collective="allgather")
    yield from part(gather.generate(sub), sub)


def _reduce_scatter(
    p: Problem, grid: _Grid, inside: list[Algorithm], outer: Algorithm
) -> Iterator[Any]:
    owner = {c: r for r in range(p.size) for c in p.owned(r)}
    sub = p.sub(grid.group, [grid.rail_of(owner[c]) for c in range(p.chunks)])
    yield from part(inside[0].generate(sub), sub)
    if grid.on_rail:
        mine = [c for c in range(p.chunks) if grid.rail_of(owner[c]) == grid.local]
        rail = p.sub(grid.rail(), [grid.node_of[owner[c]] for c in mine], chunk_ids=mine)
        yield from part(outer.generate(rail), rail)
    if grid.on_rail:
        yield from _some([send(r, *p.owned(r)) for r in grid.served() if p.owned(r)])
    elif p.owned(p.rank):
        yield recv(grid.group[grid.local % grid.rails], *p.owned(p.rank))


def _allgather(p: Problem, grid: _Grid, inside: list[Algorithm], outer: Algorithm) -> Iterator[Any]:
    owner = {c: r for r in range(p.size) for c in p.owned(r)}
    if grid.on_rail:
        yield from _some([recv(r, *p.owned(r)) for r in grid.served() if p.owned(r)])
        mine = [c for c in range(p.chunks) if grid.rail_of(owner[c]) == grid.local]
        rail = p.sub(grid.rail(), [grid.node_of[owner[c]] for c in mine], chunk_ids=mine)
        yield from part(outer.generate(rail), rail)
    elif p.owned(p.rank):
        yield send(grid.group[grid.local % grid.rails], *p.owned(p.rank))
    sub = p.sub(grid.group, [grid.rail_of(owner[c]) for c in range(p.chunks)])
    yield from part(inside[0].generate(sub), sub)


def _alltoall(p: Problem, grid: _Grid, inside: list[Algorithm], outer: Algorithm) -> Iterator[Any]:
    """Hand a neighbour what its rail carries, then each rail exchanges between the nodes."""
    away = [r for r in range(p.size) if grid.node_of[r] != grid.node]
    carried = [[d for d in away if grid.rail_of(d) == j] for j in range(len(grid.group))]
    near: Pairs = {
        (i, j): ((s, d), *(() if i == j else [(s, far) for far in carried[j]]))
        for i, s in enumerate(grid.group)
        for j, d in enumerate(grid.group)
    }
    sub = p.sub(grid.group, pairs=near)
    yield from part(inside[0].generate(sub), sub)
    if grid.on_rail:
        served = [[d for d in g if grid.rail_of(d) == grid.local] for g in grid.groups]
        far: Pairs = {
            (a, b): tuple([(s, d) for s in sources for d in served[b]]) if a != b else ()
            for a, sources in enumerate(grid.groups)
            for b in range(len(grid.groups))
        }
        rail = p.sub(grid.rail(), pairs=far)
        yield from part(outer.generate(rail), rail)
        yield from _some([send(d, *[(s, d) for s in away]) for d in grid.served() if away])
    elif away:
        source = grid.group[grid.local % grid.rails]
        yield recv(source, *[(s, p.rank) for s in away])
