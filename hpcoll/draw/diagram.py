"""The space-time diagram of an algorithm: run it, title it, draw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpcoll.draw import messages, spacetime
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.counts import Counts, unit_of
from hpcoll.schedule.problem import Problem


def draw(
    algorithm: Algorithm,
    problem: Problem,
    counts: Counts | None,
    text: Callable[[Sequence[Any]], str],
    path: str | Path,
) -> None:
    """Draw the messages of an algorithm in time.

    Parameters
    ----------
    algorithm : Algorithm
        One with a schedule.
    problem : Problem
        What it is asked, as any rank sees it.
    counts : Counts or None
        What it costs, for the title; None where its proof failed.
    text : callable
        Chunks in words.
    path : str or Path
        File to write; its ending says the format.

    Raises
    ------
    ScheduleError
        If the schedule comes to no end.
    ConfigError
        If matplotlib is missing, or there are too many ranks or rounds.
    """
    run = messages.run(algorithm, problem)
    rooted, pairs = COLLECTIVES[algorithm.collective].rooted, algorithm.collective == "alltoall"
    first = [algorithm.spec, _number(problem.size, "rank")]
    first += [f"root {problem.root}"] if rooted else []
    first += [_number(len(problem.nodes), "node")] if len(problem.nodes) > 1 else []
    second = [_number(run.rounds, "round"), _number(len(run.arrows), "message")]
    if counts is None:
        second.append("the proof failed")
    elif counts.volume:
        second.append(f"busiest rank: {float(counts.volume):.4g} n bytes one way")
        if counts.reductions:
            second.append(f"{float(counts.reductions):.4g} n reduced")
    unit = unit_of(problem)
    look = spacetime.Look(
        title=f"{', '.join(first)}\n{', '.join(second)}",
        size=problem.size,
        root=problem.root if rooted else None,
        node_of=problem.topology.node_of if problem.topology else (0,) * problem.size,
        chunks=problem.size if pairs else problem.chunks,
        unit="n bytes" if unit == 1 else f"n/{unit.denominator} bytes",
        pairs=pairs,
        text=text,
    )
    spacetime.draw(run, look, path)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
