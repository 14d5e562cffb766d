"""Schedules out of schedules: as part of a larger problem, at once, or backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from hpcoll.errors import ScheduleError
from hpcoll.schedule.operations import (
    Chunk,
    Copy,
    Fold,
    Incoming,
    Operation,
    Place,
    Recv,
    Send,
    Step,
    as_step,
    checked_lane,
    messages_in,
    tmp,
)
from hpcoll.schedule.problem import Problem


def part(steps: Iterable[Any], sub: Problem, *, lane: int = 0) -> Iterator[Step]:
    """Run a sub-problem's steps as part of a larger algorithm.

    Peers and chunks are translated from the numbers of `sub` (made by
    `Problem.sub`) to those of the problem it is part of, and its messages travel
    in their own lane.
    """
    checked_lane(lane)
    ranks, ids = sub.ranks, sub.chunk_ids
    if not lane and ids is None and ranks == tuple(range(len(ranks))):
        yield from map(as_step, steps)  # nothing to translate
        return

    def peer(r: int) -> int:
        if not 0 <= r < len(ranks):
            raise ScheduleError(f"no rank {r} among the {len(ranks)} of this part")
        return ranks[r]

    def named(c: Any) -> tuple[Any, ...]:
        """The chunks of the larger problem that a chunk stands for."""
        if ids is not None:
            found = ids.get(c)
            if found is None:
                raise ScheduleError(f"no chunk {c} among the {len(ids)} of this part")
            return found
        return ((peer(c[0]), peer(c[1])),) if isinstance(c, tuple) else (c,)

    def chunks(group: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
        found: list[Any] = []
        for c in group:
            if isinstance(c, Place):
                slot = (lane, c.slot) if c.buffer == "tmp" else 0
                found.extend([Place(c.buffer, d, slot) for d in named(c.chunk)])
            else:
                found.extend(named(c))
        return tuple(found)

    def message(m: Incoming) -> Incoming:
        return Incoming(peer(m.peer), checked_lane(m.lane + lane))

    for yielded in steps:
        translated: list[Operation] = []
        for op in as_step(yielded):
            if isinstance(op, Send):
                peers = tuple([peer(r) for r in op.peers])
                translated.append(Send(peers, chunks(op.chunks), checked_lane(op.lane + lane)))
            elif isinstance(op, Recv):
                source, at = message(Incoming(op.peer, op.lane))
                translated.append(Recv(source, chunks(op.chunks), at))
            elif isinstance(op, Copy):
                if to := chunks(op.to):
                    translated.append(Copy(to, chunks(op.source)))
            else:
                into = chunks(op.into)
                operands = [
                    message(o) if isinstance(o, Incoming) else chunks(o) for o in op.operands
                ]
                if into:
                    translated.append(Fold(into, tuple(operands)))
                else:  # of no chunk at all: what is left of it is a signal
                    translated += [
                        Recv(o.peer, (), o.lane) for o in operands if isinstance(o, Incoming)
                    ]
        yield tuple(translated)


def at_once(*runs: Iterable[Any]) -> Iterator[Step]:
    """Run several parts at the same time, step by step; they must touch different chunks."""
    for steps in zip_longest(*runs, fillvalue=()):
        yield tuple([operation for step in steps for operation in as_step(step)])


def staggered(
    steps: Iterable[Step], slots: Sequence[int], copies: Iterable[Problem]
) -> Iterator[Step]:
    """Run the same steps on several parts, each one slot behind the one before: a pipeline.

    Parameters
    ----------
    steps : iterable of Step
        The steps of this rank.
    slots : sequence of int
        The slot of each step, from `slots_of`.
    copies : iterable of Problem
        The parts, made by `Problem.sub`.
    """
    base = list(steps)
    at = {slot: i for i, slot in enumerate(slots)}
    runs = [list(part(base, sub)) for sub in copies]
    for now in range(max(slots, default=-1) + len(runs)):
        step = [op for i, run in enumerate(runs) if now - i in at for op in run[at[now - i]]]
        if step:
            yield tuple(step)


def slots_of(schedules: Sequence[Iterable[Step]]) -> list[list[int]]:
    """When each step of each rank goes on, if both ends of a message are to be there at once.

    Raises
    ------
    ScheduleError
        If there is no such time-table, or messages have no counterpart.
    """
    steps: list[tuple[int, int]] = []
    ends: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    before: list[int] = []
    for rank, schedule in enumerate(schedules):
        for i, step in enumerate(schedule):
            number = len(steps)
            steps.append((rank, i))
            before.append(number - 1 if i else -1)
            for op in step:
                if isinstance(op, Send):
                    for peer in op.peers:
                        ends.setdefault((rank, peer, op.lane), ([], []))[0].append(number)
                for message in messages_in(op):
                    key = (message.peer, rank, message.lane)
                    ends.setdefault(key, ([], []))[1].append(number)
    group = list(range(len(steps)))

    def find(n: int) -> int:
        while group[n] != n:
            group[n] = group[group[n]]
            n = group[n]
        return n

    for (source, target, _), (sent, received) in ends.items():
        if len(sent) != len(received):
            raise ScheduleError(
                f"rank {source} sends {len(sent)} messages to rank {target}, which receives "
                f"{len(received)}"
            )
        for a, b in zip(sent, received, strict=True):
            group[find(a)] = find(b)
    following: dict[int, list[int]] = {}
    waits = dict.fromkeys(map(find, range(len(steps))), 0)
    for number, previous in enumerate(before):
        if previous >= 0:
            following.setdefault(find(previous), []).append(find(number))
            waits[find(number)] += 1
    slot = dict.fromkeys((g for g, n in waits.items() if not n), 0)
    ready = list(slot)
    for g in ready:
        for later in following.get(g, ()):
            slot[later] = max(slot.get(later, 0), slot[g] + 1)
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    if len(ready) < len(waits):
        raise ScheduleError("its messages can't be sent and received in the same steps")
    found: list[list[int]] = [[] for _ in schedules]
    for number, (rank, _) in enumerate(steps):
        found[rank].append(slot[find(number)])
    return found


def backwards(steps: Iterable[Any], rank: int, *, reduces: bool) -> Iterator[Step]:
    """Run a schedule that spreads data backwards, so that it collects data.

    Every send becomes a receive and every receive a send, the last step first: a
    broadcast becomes a reduce, an allgather a reduce_scatter, a scatter a gather.

    Parameters
    ----------
    steps : iterable of steps
        Sends and receives only.
    rank : int
        The rank whose steps they are: what lower ranks send is put on the left.
    reduces : bool
        Whether what arrives is folded, or takes its place.

    Raises
    ------
    ScheduleError
        If a step copies or folds.
    """
    for step in reversed(list(map(as_step, steps))):
        sends: list[Operation] = []
        arriving: list[Recv] = []
        for op in reversed(step):
            if isinstance(op, Recv):
                sends.append(Send((op.peer,), op.chunks, op.lane))
            elif isinstance(op, Send):
                arriving += [Recv(peer, op.chunks, op.lane) for peer in reversed(op.peers)]
            else:
                raise ScheduleError("a schedule that copies or folds can't be run backwards")
        if reduces and any(op.chunks for op in arriving):
            yield from _folded(sends, arriving, rank)
        else:
            yield (*sends, *arriving)


def _folded(sends: list[Operation], arriving: list[Recv], rank: int) -> Iterator[Step]:
    """Fold what arrives in one step: at once, or through tmp where messages overlap."""
    alike: dict[tuple[Chunk, ...], list[Recv]] = {}
    for message in arriving:
        alike.setdefault(message.chunks, []).append(message)
    every = [c for group in alike for c in group]
    if len(set(every)) == len(every):
        folds = [
            Fold(group, _in_rank_order([(m.peer, Incoming(m.peer, m.lane)) for m in messages],
                                       rank, group))
            for group, messages in alike.items()
        ]  # fmt: skip
        yield (*sends, *folds)
        return
    staged: dict[Chunk, list[tuple[int, Any]]] = {}
    recvs: list[Operation] = []
    for n, message in enumerate(arriving):
        places = tuple([tmp(c, ("back", n)) for c in message.chunks])  # type: ignore[arg-type]
        recvs.append(Recv(message.peer, places, message.lane))
        for chunk, place in zip(message.chunks, places, strict=True):
            staged.setdefault(chunk, []).append((message.peer, (place,)))
    yield (*sends, *recvs)
    yield tuple([Fold((c,), _in_rank_order(parts, rank, (c,))) for c, parts in staged.items()])


def _in_rank_order(parts: list[tuple[int, Any]], rank: int, own: tuple[Chunk, ...]) -> Any:
    return tuple([o for _, o in sorted([*parts, (rank, own)], key=lambda part: part[0])])
