"""The proof: run a schedule for all ranks on symbols and hold it to its collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcoll.errors import ScheduleError
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.counts import Counts, count
from hpcoll.schedule.operations import Chunk, Place, Step
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.simulate import Fault, Simulation, Trace, describe_missing
from hpcoll.schedule.symbols import Symbols, rank_list

ALL_ROOTS_UP_TO = 8


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
    counts: Counts | None = None

    @property
    def proved(self) -> bool:
        """Whether the schedule is right."""
        return self.skipped is None and self.fault is None


def prove(algorithm: Algorithm, size: int, *, roots: Sequence[int] | None = None) -> Proof:
    """Prove an algorithm at one number of ranks.

    Every rank's schedule is run with equal and with unequal chunks (some empty),
    with one block of chunks a rank and with irregular owners, in place and not, for
    each root.

    Parameters
    ----------
    algorithm : Algorithm
        What to prove.
    size : int
        Number of ranks.
    roots : sequence of int, optional
        By default all up to 8 ranks, and else three of them.
    """
    if algorithm.native:
        return Proof(algorithm.spec, size, skipped="native: the library's own, has no schedule")
    kind = COLLECTIVES[algorithm.collective]
    if roots is None:
        every = range(size) if size <= ALL_ROOTS_UP_TO else sorted({0, size // 2, size - 1})
        roots = tuple(every) if kind.rooted else (0,)
    rank_order = bit_identical = in_place = True
    counts: Counts | None = None
    for root in roots:
        for owners in _owner_maps(algorithm, size, root):
            try:
                p = algorithm.problem(0, size, root=root, owners=owners)
                reason = algorithm.refuses(p)
                if reason is not None:
                    if counts is None and owners is None:
                        return Proof(algorithm.spec, size, skipped=reason)
                    continue
                problems = [p.at(r) for r in range(size)]
                schedules = [algorithm.steps(q) for q in problems]
                symbols = Symbols()
                trace = _run(problems, schedules, symbols)
                facts = _check(problems, symbols, trace)
            except Fault as fault:
                return _faulty(algorithm, size, root, kind.rooted, owners, fault, fault.kind)
            except ScheduleError as error:
                return _faulty(algorithm, size, root, kind.rooted, owners, error, "error")
            rank_order &= facts[0]
            bit_identical &= facts[1]
            in_place = in_place and _right_in_place(problems, schedules)
            if counts is None:
                counts = count(problems, schedules, trace)
    return Proof(
        algorithm.spec,
        size,
        rank_order=rank_order,
        bit_identical=bit_identical,
        in_place=in_place,
        counts=counts,
    )


def _faulty(
    algorithm: Algorithm,
    size: int,
    root: int,
    rooted: bool,
    owners: tuple[int, ...] | None,
    error: ScheduleError,
    kind: str,
) -> Proof:
    setting = f"{algorithm.spec} at {size} ranks" + (f", root {root}" if rooted else "")
    if owners is not None:
        setting += f", chunks owned by ranks {list(owners)}"
    return Proof(algorithm.spec, size, fault=f"{setting}: {error}", kind=kind)


def _owner_maps(algorithm: Algorithm, size: int, root: int) -> Iterator[tuple[int, ...] | None]:
    """The regular owner map, and one where ranks own two chunks, none, or far ones."""
    yield None
    if COLLECTIVES[algorithm.collective].owned and size > 1 and root in (0, size - 1):
        yield tuple((3 * c + 1) % size if c % 2 else c % size for c in range(size + 1))


def _run(problems: list[Problem], schedules: list[list[Step]], symbols: Symbols) -> Trace:
    size = len(problems)

    def unequal(chunk: Chunk) -> int:
        at = chunk.chunk if isinstance(chunk, Place) else chunk
        return at[0] * size + at[1] if isinstance(at, tuple) else at  # type: ignore[return-value]

    try:
        return Simulation(problems, schedules, symbols, unequal).run()
    except Fault as fault:
        if fault.kind != "deadlock":
            raise
        try:
            Simulation(problems, schedules, Symbols(), unequal, eager=True).run()
        except Fault:
            raise fault from None
        raise Fault(
            "needs buffering",
            f"deadlock when sends wait for their receives (it ends only if sends are "
            f"buffered): {str(fault).removeprefix('deadlock: ')}",
        ) from None


def _check(problems: list[Problem], symbols: Symbols, trace: Trace) -> tuple[bool, bool]:
    """Hold the result to the collective; return (rank order kept, bits identical)."""
    kind = COLLECTIVES[problems[0].collective]
    if kind.name == "barrier":
        return _check_barrier(problems, trace), True
    ordered = True
    identical = True
    first: dict[object, int] = {}
    for p in problems:
        memory, values = trace.memories[p.rank], trace.values[p.rank]
        for chunk in kind.outputs(p):
            value = values.get(memory.read(chunk))
            ranks = kind.contributors(p, chunk)
            want = ((1 << len(ranks)) - 1) << ranks.start
            right = (
                value is not None
                and symbols.mask[value] == want
                and not symbols.twice[value]
                and not symbols.mixed[value]
                and symbols.chunk[value] == chunk
            )
            if not right:
                expected = (
                    f"chunk {chunk} reduced over ranks {rank_list(want)}"
                    if kind.reduces and len(ranks) > 1
                    else f"chunk {chunk} of rank {rank_list(want)}"
                )
                lack = describe_missing(symbols, value, want)
                raise Fault(
                    "wrong result",
                    f"chunk {chunk} ends as {symbols.text(value)}, not as {expected}"
                    + (f" ({lack})" if lack and value is not None else ""),
                    p.rank,
                )
            assert value is not None
            ordered = ordered and symbols.in_rank_order(value)
            if kind.name not in ("scan", "exscan"):
                identical = identical and first.setdefault(chunk, value) == value
    return ordered, identical


def _check_barrier(problems: list[Problem], trace: Trace) -> bool:
    """No rank may leave before it has heard, directly or not, from all others."""
    everyone = (1 << len(problems)) - 1
    for rank, heard in enumerate(trace.heard):
        if heard != everyone:
            raise Fault(
                "wrong result",
                f"leaves the barrier without having heard from rank {rank_list(everyone & ~heard)}",
                rank,
            )
    return True


def _right_in_place(problems: list[Problem], schedules: list[list[Step]]) -> bool:
    symbols = Symbols()
    try:
        trace = Simulation(problems, schedules, symbols, lambda c: 0, aliased=True).run()
        _check(problems, symbols, trace)
    except Fault:
        return False
    return True
