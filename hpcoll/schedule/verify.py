"""The proof: run a schedule for all ranks on symbols and hold it to its collective."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from hpcoll.errors import ScheduleError
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.counts import Counts, count
from hpcoll.schedule.faults import Fault
from hpcoll.schedule.operations import Step, written_by
from hpcoll.schedule.problem import Asked, Problem
from hpcoll.schedule.simulate import Simulation, Trace
from hpcoll.schedule.symbols import Symbols, contribution, rank_list
from hpcoll.schedule.topology import Topology, Watched
from hpcoll.schedule.uncollected import uncollected

ALL_ROOTS_UP_TO = 8
IRREGULAR_UP_TO = 256
"""Up to so many ranks chunks are also given to owners at random."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved of one algorithm at one number of ranks.

    Attributes
    ----------
    algorithm : str
        Its name with tunables.
    ranks : int
        Number of ranks.
    skipped : str or None
        Why nothing was proved: the algorithm refuses this number of ranks.
    fault : str or None
        The counterexample, where the schedule is wrong.
    kind : str or None
        Its kind.
    rank_order : bool
        Whether operands are combined in rank order: usable for operators that
        don't commute.
    bit_identical : bool
        Whether all ranks hold the result of one and the same expression.
    in_place : bool
        Whether it is right in place as it is; else the recipe copies the input.
    topological : bool
        Whether its schedule depends on which ranks share a node.
    counts : Counts or None
        Rounds, messages, bytes and reductions.
    """

    algorithm: str
    ranks: int
    skipped: str | None = None
    fault: str | None = None
    kind: str | None = None
    rank_order: bool = False
    bit_identical: bool = False
    in_place: bool = False
    topological: bool = False
    counts: Counts | None = None

    @property
    def proved(self) -> bool:
        """Whether the schedule is right."""
        return self.skipped is None and self.fault is None


def prove(
    algorithm: Algorithm,
    size: int,
    *,
    roots: Sequence[int] | None = None,
    topology: Topology | None = None,
) -> Proof:
    """Prove an algorithm at one number of ranks.

    Every rank's schedule is run with regular and with irregular owners of the chunks,
    for operators that commute and for those that don't, for each root. A run tells
    chunks apart by their numbers and notes what would be lost in place, so it stands
    for chunks of equal and unequal sizes, out of place and in place.

    Parameters
    ----------
    algorithm : Algorithm
        What to prove.
    size : int
        Number of ranks.
    roots : sequence of int, optional
        By default all up to 8 ranks, and else three of them.
    topology : Topology, optional
        Which ranks share a node; by default all, and, for an algorithm that looks at it,
        also nodes of unequal sizes and ranks that are dealt out in turn. Counts are
        those of the first.
    """
    if algorithm.native:
        return Proof(algorithm.spec, size, skipped="native: the library's own, has no schedule")
    if roots is None:
        every = range(size) if size <= ALL_ROOTS_UP_TO else sorted({0, size // 2, size - 1})
        roots = tuple(every) if COLLECTIVES[algorithm.collective].rooted else (0,)
    watched = Watched(topology or Topology.single_node(size))
    proof = _prove(algorithm, size, roots, watched)
    if topology is not None or not watched.seen or proof.fault is not None:
        return replace(proof, topological=watched.seen)
    others = [_prove(algorithm, size, roots, placed) for placed in _placements(size)]
    return replace(_merged([proof, *others]), topological=True)


def _merged(proofs: Sequence[Proof]) -> Proof:
    """What several proofs of one algorithm and number of ranks say together."""
    for proof in proofs:
        if proof.fault is not None:
            return proof
    proved = [p for p in proofs if p.proved]
    if not proved:
        return proofs[0]
    return replace(
        proved[0],
        rank_order=all(p.rank_order for p in proved),
        bit_identical=all(p.bit_identical for p in proved),
        in_place=all(p.in_place for p in proved),
    )


def _placements(size: int) -> Iterator[Topology]:
    """Some ways in which ranks lie on several nodes, equal and unequal."""
    if size < 2:
        return
    yield Topology.blocks(size, max(2, isqrt(size)))
    yield Topology([r % 2 for r in range(size)])
    yield Topology([0] * (size - 1) + [1])
    yield Topology(range(size))
    if size >= 5:
        yield Topology([r % 3 for r in range(size - 1)] + [2])


def _prove(algorithm: Algorithm, size: int, roots: Sequence[int], topology: Topology) -> Proof:
    """The proof for one placement of the ranks."""
    kind = COLLECTIVES[algorithm.collective]
    found = Proof(algorithm.spec, size, rank_order=True, bit_identical=True, in_place=True)
    settings = [(root, owners) for root in roots for owners in _owner_maps(algorithm, size)]
    for number, (root, owners) in enumerate(settings):
        ordered = True
        for commutes in (True, False) if kind.reduces else (True,):
            asked = Asked(commutes)
            try:
                p = algorithm.problem(
                    0, size, root=root, owners=owners, topology=topology, commutes=asked
                )
                reason = algorithm.refuses(p)
                if reason is not None:
                    if number == 0:
                        return Proof(algorithm.spec, size, skipped=reason)
                    break
                with uncollected():
                    problems = [p.at(r) for r in range(size)]
                    symbols = Symbols()
                    trace = _run(algorithm, problems, symbols)
                    ordered, identical = _check(algorithm, problems, symbols, trace)
                    if number == 0 and commutes:
                        found = replace(found, counts=count(problems, trace))
            except ScheduleError as error:
                setting = f"{algorithm.spec} at {size} ranks"
                setting += f", root {root}" if kind.rooted else ""
                setting += "" if owners is None else f", chunks owned by ranks {list(owners)}"
                if len(topology.nodes) > 1:
                    setting += f", on nodes {list(topology.node_of)}"
                setting += "" if commutes else ", operator that doesn't commute"
                kind_of = error.kind if isinstance(error, Fault) else "error"
                return Proof(algorithm.spec, size, fault=f"{setting}: {error}", kind=kind_of)
            found = replace(
                found,
                bit_identical=found.bit_identical and identical,
                in_place=found.in_place and trace.in_place,
            )
            if not asked.seen:
                break  # the schedule is the same for operators that don't commute
        # A schedule of its own for operators that don't commute decides on the order.
        found = replace(found, rank_order=found.rank_order and ordered)
    return found


def _owner_maps(algorithm: Algorithm, size: int) -> Iterator[tuple[int, ...] | None]:
    """The regular owner map, and some where ranks own several chunks, none, or far ones."""
    yield None
    if not COLLECTIVES[algorithm.collective].owned or size > IRREGULAR_UP_TO:
        return
    yield tuple(random.Random(size).choices(range(size), k=size + 2))
    if size <= ALL_ROOTS_UP_TO:
        yield tuple(c // 2 for c in range(2 * size))
        yield tuple(reversed(range(size)))
        yield from ((r, (r + 1) % size, r, r) for r in range(size))
        yield ()


def _run(algorithm: Algorithm, problems: list[Problem], symbols: Symbols) -> Trace:
    def simulation(symbols: Symbols, *, eager: bool = False) -> Simulation:
        schedules = [algorithm.stream(p) for p in problems]
        return Simulation(problems, schedules, symbols, eager=eager)

    try:
        return simulation(symbols).run()
    except Fault as fault:
        if fault.kind != "deadlock":
            raise
        try:
            simulation(Symbols(), eager=True).run()
        except Fault as eager:
            # What is wrong even with buffers says more than who waits for whom.
            raise (fault if eager.kind == "deadlock" else eager) from None
        raise Fault(
            "needs buffering",
            f"deadlock where sends wait for their receives, ends only where they are "
            f"buffered: {fault.text}",
            fault.rank,
            fault.step,
        ) from None


def _check(
    algorithm: Algorithm, problems: list[Problem], symbols: Symbols, trace: Trace
) -> tuple[bool, bool]:
    """Hold the result to the collective; return (rank order kept, bits identical)."""
    kind = COLLECTIVES[problems[0].collective]
    if kind.name == "barrier":
        _check_barrier(trace)
        return True, True
    # Who contributes depends on the rank in a scan, on the chunk alone elsewhere.
    by_rank = kind.name in ("scan", "exscan")
    wanted: dict[object, int] = {}
    ordered = identical = True
    first: dict[object, int] = {}
    for p in problems:
        held = trace.held[p.rank]
        for chunk in kind.outputs(p):
            key = p.rank if by_rank else chunk
            want = wanted.get(key)
            if want is None:
                ranks = kind.contributors(p, chunk)
                want = wanted[key] = ((1 << len(ranks)) - 1) << ranks.start
            value = held.get(chunk)
            if (
                value is None
                or symbols.mask[value] != want
                or symbols.twice[value]
                or symbols.mixed[value]
                or symbols.chunk[value] != chunk
            ):
                raise _wrong(symbols, p, algorithm.steps(p), chunk, value, want)
            ordered = ordered and symbols.in_rank_order(value)
            if not by_rank:
                identical = identical and first.setdefault(chunk, value) == value
    return ordered, identical


def _wrong(
    symbols: Symbols,
    p: Problem,
    schedule: list[Step],
    chunk: object,
    value: int | None,
    want: int,
) -> Fault:
    """The fault of a chunk that doesn't end as it should."""
    writes = [i for i, step in enumerate(schedule) if any(chunk in written_by(op) for op in step)]
    since = f"(last written in step {writes[-1]})" if writes else "(never written)"
    text = f"chunk {chunk} {since} ends as {symbols.text(value)}, not as "
    text += f"{contribution(chunk, want)}"
    if value is not None:
        lack, excess = want & ~symbols.mask[value], symbols.mask[value] & ~want
        text += f"; missing: rank {rank_list(lack)}" if lack else ""
        text += f"; not wanted: rank {rank_list(excess)}" if excess else ""
    return Fault("wrong result", text, p.rank, writes[-1] if writes else None)


def _check_barrier(trace: Trace) -> None:
    """No rank may leave before it has heard, directly or not, from all others."""
    everyone = (1 << len(trace.heard)) - 1
    for rank, heard in enumerate(trace.heard):
        if heard != everyone:
            raise Fault(
                "wrong result",
                f"leaves the barrier without having heard from rank {rank_list(everyone & ~heard)}",
                rank,
            )
