"""Recursive doubling: exchange everything with the rank across, 1, 2, 4, ... away.

The fewest rounds, each with all that a rank knows: for small messages.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._pairs import Team, power_below
from hpcoll.schedule import Problem, algorithm, copy, fold, recv, recv_reduce, send, tmp

SOURCE = "Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521"


@algorithm("allreduce", name="recursive_doubling", source=SOURCE)
def allreduce(p: Problem) -> Iterator[Any]:
    """Both partners fold the same two halves in rank order, so all bits are the same."""
    team = Team.of(p.size)
    me = team.member(p.rank)
    if me is None:
        yield send(p.rank + 1, 0)
        yield recv(p.rank + 1, 0)
        return
    if me < team.pairs:
        yield recv_reduce(p.rank - 1, 0, first=True)
    for k in range(team.size.bit_length() - 1):
        peer = team.rank(me ^ 1 << k)
        yield send(peer, 0), recv_reduce(peer, 0, first=peer < p.rank)
    if me < team.pairs:
        yield send(p.rank - 1, 0)


def _power_of_two(p: Problem) -> str | None:
    if p.size == power_below(p.size):
        return None
    return f"needs a power of two of ranks, not {p.size}: bruck serves any number"


@algorithm("allgather", name="recursive_doubling", when=_power_of_two, source=SOURCE)
def allgather(p: Problem) -> Iterator[Any]:
    """Exchange all blocks of one's half of a group that doubles."""

    def blocks(first: int, count: int) -> list[int]:
        return [c for r in range(first, first + count) for c in p.owned(r)]

    for k in range(p.size.bit_length() - 1):
        width = 1 << k
        peer = p.rank ^ width
        yield (
            send(peer, *blocks(p.rank & -width, width)),
            recv(peer, *blocks(peer & -width, width)),
        )


def _needed(size: int, rank: int, k: int) -> bool:
    """Whether someone still asks `rank` for the sum of its group of 2^k ranks."""
    return any(
        (peer := rank ^ 1 << j) < size and (peer > rank or _needed(size, peer, j + 1))
        for j in range(k, (size - 1).bit_length())
    )


def _prefix(p: Problem, *, started: bool) -> Iterator[Any]:
    """Keep the prefix in the work chunk and the sum of one's group in temporary space."""
    group, lower = tmp(0), tmp(0, "lower")
    if _needed(p.size, p.rank, 0):
        yield copy(group, 0)
    for k in range((p.size - 1).bit_length()):
        peer = p.rank ^ 1 << k
        if peer >= p.size:
            continue
        grows = _needed(p.size, p.rank, k + 1)
        if peer > p.rank:
            yield send(peer, group), recv_reduce(peer, group) if grows else ()
            continue
        asked = send(peer, group) if _needed(p.size, peer, k + 1) else ()
        if not started:
            yield asked, recv(peer, 0)
            if grows:
                yield fold(group, [0, group])
        elif grows:
            yield asked, recv(peer, lower)
            yield fold(0, [lower, 0]), fold(group, [lower, group])
        else:
            yield asked, recv_reduce(peer, 0, first=True)
        started = True


@algorithm("scan", name="recursive_doubling", source=SOURCE)
def scan(p: Problem) -> Iterator[Any]:
    """Fold what comes from lower ranks into the prefix, all into the group's sum."""
    yield from _prefix(p, started=True)


@algorithm("exscan", name="recursive_doubling", source=SOURCE)
def exscan(p: Problem) -> Iterator[Any]:
    """As scan, but the prefix begins with the first message from a lower rank."""
    yield from _prefix(p, started=False)
