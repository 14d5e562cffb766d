"""Algorithms made of algorithms; each is proved and counted like any other.

A part is an `Algorithm` or a function that the `algorithm` decorator registered. The
tunables of a combined algorithm are those of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from math import lcm
from typing import Any, TypeAlias

from hpcoll.errors import RegistryError
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.operations import LANES
from hpcoll.schedule.parts import at_once, backwards, part, slots_of, staggered
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.registry import registered, tunables_of

Part: TypeAlias = "Algorithm | Callable[..., Any]"


def permuted(a: Part, order: Callable[[Problem], Sequence[int]]) -> Algorithm:
    """The same schedule over the ranks in another order, such as one that keeps nodes together.

    Parameters
    ----------
    a : Algorithm
        What runs.
    order : callable
        From the problem, the same on all ranks: the ranks in their new order.
    """
    base = _orderless(registered(a), "permuted")

    def run(p: Problem, **tunables: int) -> Iterator[Any]:
        ranks = list(order(p))
        if sorted(ranks) != list(range(p.size)):
            raise RegistryError(
                f"order gave {ranks}, which doesn't name each of {p.size} ranks once"
            )
        sub = p.sub(ranks, _owners(p, ranks), root=ranks.index(p.root))
        yield from part(with_tunables(base, tunables).generate(sub), sub)

    return combined("permuted", base.collective, run, [base], base.chunks, base.when)


def mirrored(a: Part) -> Algorithm:
    """Half of the message as it is, half in the mirrored rank order, at the same time.

    A ring becomes two rings in opposite directions, which use both directions of a link.
    For algorithms whose ranks are in step: both ends of a message in the same step, else
    the halves may wait for each other, which the proof finds.
    """
    base = _orderless(registered(a), "mirrored")

    def run(p: Problem, **tunables: int) -> Iterator[Any]:
        algorithm = with_tunables(base, tunables)
        runs = []
        for half, ranks in enumerate((range(p.size), range(p.size - 1, -1, -1))):
            ids = _share(p, half, 2)
            sub = p.sub(ranks, _owners(p, ranks, ids), chunk_ids=ids, root=ranks.index(p.root))
            runs.append(part(algorithm.generate(sub), sub, lane=half * (LANES // 2)))
        yield from at_once(*runs)

    def chunks(p: Problem, **tunables: int) -> int:
        return 2 * with_tunables(base, tunables).problem(p.rank, p.size, topology=p.topology).chunks

    return combined("mirrored", base.collective, run, [base], chunks, base.when)


def segmented(a: Part, segments: int = 4) -> Algorithm:
    """The message cut into segments, each a step behind the one before: a pipeline.

    Parameters
    ----------
    a : Algorithm
        What runs for each segment.
    segments : int
        How many, where neither the user nor the message size says: the default of the
        tunable of that name.
    """
    base = _chunked(registered(a), "segmented")

    def run(p: Problem, *, segments: int, **tunables: int) -> Iterator[Any]:
        algorithm = with_tunables(base, tunables)
        ranks = range(p.size)
        subs = []
        for segment in range(segments):
            ids = _share(p, segment, segments)
            subs.append(p.sub(ranks, _owners(p, ranks, ids), chunk_ids=ids, root=p.root))
        for alike, group in groupby(subs, key=lambda q: (q.chunks, q.blocks)):
            one = replace(p, chunks=alike[0], blocks=alike[1], ranks=(), chunk_ids=None)
            slots = _slots(algorithm, one.at(0))[p.rank]
            yield from staggered(algorithm.stream(one), slots, group)

    def chunks(p: Problem, *, segments: int, **tunables: int) -> int:
        each = with_tunables(base, tunables).problem(p.rank, p.size, topology=p.topology).chunks
        return segments * each

    new = combined("segmented", base.collective, run, [base], chunks, base.when)
    return replace(new, tunables=(*new.tunables, ("segments", segments)))


def reversed_(a: Part) -> Algorithm:
    """A schedule that spreads data run backwards, so that it collects it.

    A broadcast becomes a reduce, an allgather a reduce_scatter, a scatter a gather.
    """
    base = registered(a)
    opposite = {"broadcast": "reduce", "allgather": "reduce_scatter", "scatter": "gather"}
    if base.collective not in opposite:
        raise RegistryError(f"{base.full_name} can't be reversed: only {', '.join(opposite)} can")

    def run(p: Problem, **tunables: int) -> Iterator[Any]:
        forward = replace(p, collective=base.collective)
        steps = with_tunables(base, tunables).generate(forward)
        yield from backwards(steps, p.rank, reduces=base.collective != "scatter")

    collective = opposite[base.collective]
    return combined("reversed", collective, run, [base], base.chunks, base.when)


def sequence(collective: str, *parts: Part) -> Algorithm:
    """One algorithm after the other on the same chunks.

    A reduce_scatter and an allgather make an allreduce, a scatter and an allgather a
    broadcast.
    """
    bases = [registered(a) for a in parts]
    if collective not in COLLECTIVES:
        raise RegistryError(
            f"no collective {collective!r} to make: use one of {', '.join(COLLECTIVES)}"
        )

    def run(p: Problem, **tunables: int) -> Iterator[Any]:
        blocks = p.blocks or tuple(bundles(range(p.chunks), p.size))
        for base in bases:
            algorithm = with_tunables(base, tunables)
            if COLLECTIVES[base.collective].owned:  # its chunks are those of the whole
                yield from algorithm.generate(replace(p, collective=base.collective, blocks=blocks))
                continue
            own = algorithm.problem(p.rank, p.size, topology=p.topology).chunks
            ids = bundles(range(p.chunks), own)
            sub = p.sub(range(p.size), collective=base.collective, chunk_ids=ids, root=p.root)
            yield from part(algorithm.generate(sub), sub)

    def chunks(p: Problem, **tunables: int) -> int:
        return lcm(
            *(with_tunables(b, tunables).problem(p.rank, p.size, topology=p.topology).chunks or 1
              for b in bases)
        )  # fmt: skip

    def when(p: Problem, **tunables: int) -> str | None:
        reasons = [with_tunables(b, tunables).refuses(p) for b in bases]
        return next((reason for reason in reasons if reason), None)

    return combined("sequence", collective, run, bases, chunks, when)


def bundles(ids: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Chunks in `count` groups of neighbours, to be dealt with as one chunk each."""
    return [tuple(ids[i * len(ids) // count : (i + 1) * len(ids) // count]) for i in range(count)]


@lru_cache(maxsize=16)
def _slots(a: Algorithm, p: Problem) -> list[list[int]]:
    """When each step of each rank goes on."""
    return slots_of([a.stream(p.at(r)) for r in range(p.size)])


def _share(p: Problem, index: int, parts: int) -> list[int]:
    """The chunks of one part of the message: a part of each owner's block, or of all."""
    blocks = p.blocks or (range(p.chunks),)
    share = [c for b in blocks for c in b[index * len(b) // parts : (index + 1) * len(b) // parts]]
    return sorted(share)


def _owners(p: Problem, ranks: Sequence[int], ids: Sequence[int] | None = None) -> list[int] | None:
    """The new number of the owner of each chunk, for the ranks in their new order."""
    if not p.blocks:
        return None
    new = {rank: number for number, rank in enumerate(ranks)}
    owner = {c: new[r] for r, block in enumerate(p.blocks) for c in block}
    return [owner[c] for c in (range(p.chunks) if ids is None else ids)]


def with_tunables(base: Algorithm, tunables: dict[str, int]) -> Algorithm:
    """A part with those of the tunables that it has."""
    mine = tuple((k, tunables.get(k, v)) for k, v in base.tunables)
    return base if mine == base.tunables else replace(base, tunables=mine)


def ask(function: Callable[..., Any], p: Problem, tunables: dict[str, int]) -> Any:
    """Call a function of the problem with those tunables that it names."""
    return function(p, **{k: v for k, v in tunables.items() if k in tunables_of(function)})


def combined(
    kind: str,
    collective: str,
    run: Callable[..., Iterator[Any]],
    parts: Sequence[Algorithm],
    chunks: Callable[..., int],
    when: Callable[..., str | None],
    *owners_of_tunables: Callable[..., Any],
) -> Algorithm:
    """An algorithm made of parts; its tunables are theirs and those of some functions."""
    tunables = {k: v for a in parts for k, v in a.tunables}
    for function in owners_of_tunables:
        tunables |= tunables_of(function)
    return Algorithm(
        collective,
        f"{kind}({', '.join(a.name for a in parts)})",
        run,
        chunks,
        when,
        "; ".join(dict.fromkeys(a.source for a in parts if a.source)),
        tuple(tunables.items()),
        doc="\n".join(dict.fromkeys(a.doc for a in parts)),
        parts=tuple(dict.fromkeys(parts)),
    )


def _orderless(a: Algorithm, kind: str) -> Algorithm:
    """Refuse where the meaning of the collective depends on the order of the ranks."""
    if a.collective in ("scan", "exscan"):
        raise RegistryError(f"{a.full_name} can't be {kind}: a scan means the order of the ranks")
    return a if kind == "permuted" else _chunked(a, kind)


def _chunked(a: Algorithm, kind: str) -> Algorithm:
    """Refuse where a message can't be cut any further."""
    if a.collective in ("alltoall", "barrier"):
        raise RegistryError(f"{a.full_name} can't be {kind}: {a.collective} has no chunks to share")
    return a
