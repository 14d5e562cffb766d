"""Why a run has stopped before its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from hpcoll.schedule.faults import Fault

Key: TypeAlias = "tuple[int, int, int]"


def find_stuck(
    stuck: Mapping[int, int],
    sends: Mapping[Key, Sequence[int]],
    recvs: Mapping[Key, Sequence[int]],
    *,
    eager: bool,
) -> None:
    """Raise the reason why ranks are stuck or messages were left over, if so.

    Parameters
    ----------
    stuck : mapping
        For each rank that has not ended, its step.
    sends, recvs : mapping
        For each (source, target, lane), the steps of what found no counterpart.
    eager : bool
        Whether sends complete at once.

    Raises
    ------
    Fault
        Something unmatched, or a deadlock with the cycle of ranks that wait.
    """
    waits: dict[int, dict[int, str]] = {r: {} for r in stuck}
    for (source, target, lane), steps in recvs.items():
        if source not in stuck:
            raise Fault(
                "unmatched receive",
                f"waits for a message from rank {source}{_on(lane)}, which has ended without "
                f"sending it",
                target,
                steps[0],
            )
        waits[target][source] = "for a message from"
    for (source, target, lane), steps in sends.items():
        if target not in stuck:
            raise Fault(
                "unmatched send",
                f"sends to rank {target}{_on(lane)}, which has ended without receiving it",
                source,
                steps[0],
            )
        if source in waits and not eager:
            waits[source].setdefault(target, "to send to")
    if stuck:
        cycle = _cycle(waits)
        parts = [
            f"rank {a} step {stuck[a]} waits {waits[a][b]} rank {b}" for a, b in pairwise(cycle)
        ]
        raise Fault("deadlock", "; ".join(parts), cycle[0], stuck[cycle[0]])


def _on(lane: int) -> str:
    return f" on lane {lane}" if lane else ""


def _cycle(waits: Mapping[int, Mapping[int, str]]) -> list[int]:
    """A cycle of the wait-for graph, its first rank repeated at the end."""
    rank = min(waits)
    path: list[int] = []
    while rank not in path:
        path.append(rank)
        rank = min(waits[rank])
    return [*path[path.index(rank) :], rank]
