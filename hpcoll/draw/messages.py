"""The messages of a schedule in time: what a space-time diagram shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.operations import Chunk, Fold, Place, Step, messages_in, written_by
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.simulate import Simulation
from hpcoll.schedule.symbols import Symbols
from hpcoll.schedule.timetable import timetable
from hpcoll.schedule.trace import Trace


@dataclass(frozen=True, slots=True)
class Arrow:
    """One message: from its sender at the start of a round to its receiver at the end.

    Attributes
    ----------
    source, target, round : int
        Its ranks, and the number of its round from 0.
    chunks : tuple
        What it carries: numbers, or pairs for alltoall; without a buffer's name.
    folded : bool
        Whether it is an operand of a fold.
    """

    source: int
    target: int
    round: int
    chunks: tuple[int | tuple[int, int], ...]
    folded: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A run of all ranks.

    Attributes
    ----------
    arrows : tuple of Arrow
        Its messages.
    folds : tuple of (int, int)
        Rank and time, in rounds, of each fold: when its last message is there.
    rounds : int
        Number of rounds.
    """

    arrows: tuple[Arrow, ...]
    folds: tuple[tuple[int, int], ...]
    rounds: int


def run(algorithm: Algorithm, problem: Problem) -> Run:
    """Run all ranks of an algorithm, and tell when each message travels.

    Parameters
    ----------
    algorithm : Algorithm
        One with a schedule.
    problem : Problem
        What it is asked, as any rank sees it.

    Raises
    ------
    ScheduleError
        If the run comes to no end, or an operation is wrong.
    """
    problems = [problem.at(r) for r in range(problem.size)]
    schedules = [algorithm.steps(p) for p in problems]
    trace = Simulation(problems, schedules, Symbols()).run()
    return _run(schedules, trace, timetable(trace))


def _run(schedules: Sequence[Sequence[Step]], trace: Trace, rounds: Sequence[int]) -> Run:
    arriving: dict[tuple[int, int], list[int]] = {}
    for i, m in enumerate(trace.messages):
        arriving.setdefault((m.target, m.received_in), []).append(i)
    arrows: list[Arrow] = []
    folds: dict[tuple[int, int], None] = {}
    for rank, schedule in enumerate(schedules):
        end = 0
        for number, step in enumerate(schedule):
            left = arriving.get((rank, number), [])
            for op in step:
                taken = []
                chunks = _plain(written_by(op))
                for wanted in messages_in(op):
                    # The trace doesn't keep lanes: of several messages from one rank,
                    # that with the right chunks.
                    found = min(
                        (i for i in left if trace.messages[i].source == wanted.peer),
                        key=lambda i: (_plain(trace.messages[i].chunks) != chunks, i),
                    )
                    left.remove(found)
                    taken.append(rounds[found])
                    source = trace.messages[found]
                    folded = isinstance(op, Fold)
                    arrows.append(
                        Arrow(source.source, rank, taken[-1], _plain(source.chunks), folded)
                    )
                end = max(end, *(t + 1 for t in taken), 0)
                if isinstance(op, Fold):
                    folds[rank, max(taken, default=end - 1) + 1] = None
    arrows.sort(key=lambda a: (a.round, a.source))
    return Run(tuple(arrows), tuple(folds), max(rounds, default=-1) + 1)


def _plain(chunks: Sequence[Chunk]) -> tuple[int | tuple[int, int], ...]:
    """The chunks without the buffers they are in."""
    return tuple(c.chunk if isinstance(c, Place) else c for c in chunks)  # type: ignore[misc]


def phases(shown: Run, node_of: Sequence[int]) -> list[tuple[int, int, str]]:
    """The phases of a run: first round, end, and what is done in them.

    Rounds that follow each other are one phase where all their messages are folded, or
    all stored, or some; and, where there are several nodes, inside or between them.
    """
    several = len(set(node_of)) > 1
    by_round: list[list[Arrow]] = [[] for _ in range(shown.rounds)]
    for a in shown.arrows:
        by_round[a.round].append(a)

    def what(now: int) -> str:
        arrows = by_round[now]
        words = {"folded" if a.folded else "stored" if a.chunks else "signals" for a in arrows}
        text = " and ".join(sorted(words))
        if several:
            where = {"in" if node_of[a.source] == node_of[a.target] else "between" for a in arrows}
            text += f"\n{' and '.join(sorted(where, reverse=True))} nodes"
        return text

    found: list[tuple[int, int, str]] = []
    for text, group in groupby(range(shown.rounds), key=what):
        numbers = list(group)
        found.append((numbers[0], numbers[-1] + 1, text))
    return found
