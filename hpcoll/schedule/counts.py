"""What a schedule costs, counted from the schedule itself, and the lower bounds."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

from hpcoll.schedule.operations import Send, Step
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.simulate import Message, Trace


@dataclass(frozen=True, slots=True)
class Counts:
    """The cost of a schedule; of the busiest rank where ranks differ.

    Attributes
    ----------
    rounds : int
        The longest path of messages when a rank sends one and receives one at a time.
    messages : int
        Messages that a rank sends.
    volume : Fraction
        Bytes that a rank sends, in units of the message size n.
    reductions : Fraction
        Bytes that a rank reduces, in units of n.
    scratch : Fraction
        Scratch memory of a rank, in units of n.
    total : int
        Messages of all ranks.
    """

    rounds: int
    messages: int
    volume: Fraction
    reductions: Fraction
    scratch: Fraction
    total: int


def count(problems: list[Problem], schedules: list[list[Step]], trace: Trace) -> Counts:
    """Count a run of all ranks.

    The message size n is, as in nccl-tests, the whole vector for allreduce,
    broadcast, reduce and scan, the gathered or scattered total for the others; for
    alltoall what each rank sends in all, its own part included.
    """
    unit = unit_of(problems[0])
    messages = [0] * len(problems)
    volume = [0] * len(problems)
    for m in trace.messages:
        messages[m.source] += 1
        volume[m.source] += len(m.chunks)
    return Counts(
        rounds=_rounds(schedules, trace.messages),
        messages=max(messages, default=0),
        volume=max(volume, default=0) * unit,
        reductions=max(trace.folds, default=0) * unit,
        scratch=max(trace.scratch, default=0) * unit,
        total=len(trace.messages),
    )


def unit_of(p: Problem) -> Fraction:
    """The size of a chunk, in units of the message size n."""
    parts = p.size if p.collective == "alltoall" else p.chunks
    return Fraction(1, parts) if parts else Fraction(0)


def _rounds(schedules: list[list[Step]], messages: list[Message]) -> int:
    """The end of the last message when each takes one round and ports serve one at a time.

    A message may start when its sender has begun the step, the sender's other
    messages before it have left, and the receiver's port is free.
    """
    size = len(schedules)
    outgoing: dict[tuple[int, int], list[Message]] = {}
    waiting: dict[tuple[int, int], int] = {}
    for m in messages:
        outgoing.setdefault((m.source, m.sent_in), []).append(m)
        for end in {(m.source, m.sent_in), (m.target, m.received_in)}:
            waiting[end] = waiting.get(end, 0) + 1
    for key, group in outgoing.items():
        order: dict[int, int] = {}
        for op in schedules[key[0]][key[1]]:
            if isinstance(op, Send):
                for peer in op.peers:
                    order.setdefault(peer, len(order))
        group.sort(key=lambda m: order[m.target])
    begin = [0] * size
    step = [0] * size
    out_free = [0] * size
    in_free = [0] * size
    done_at: dict[tuple[int, int], int] = {}
    heap: list[tuple[int, int, int, int]] = []

    def advance(rank: int) -> None:
        while step[rank] < len(schedules[rank]):
            key = (rank, step[rank])
            if key in outgoing:
                group = outgoing.pop(key)
                pending_sends[rank] = group
                heapq.heappush(heap, (max(begin[rank], out_free[rank]), 0, rank, step[rank]))
            if waiting.get(key, 0):
                return
            begin[rank] = max(begin[rank], done_at.get(key, 0))
            step[rank] += 1

    pending_sends: dict[int, list[Message]] = {}
    for rank in range(size):
        advance(rank)
    last = 0
    while heap:
        now, _, rank, at = heapq.heappop(heap)
        group = pending_sends[rank]
        free = [m for m in group if in_free[m.target] <= now]
        if not free:
            heapq.heappush(heap, (min(in_free[m.target] for m in group), 1, rank, at))
            continue
        m = free[0]
        group.remove(m)
        end = now + 1
        out_free[rank] = in_free[m.target] = end
        last = max(last, end)
        for key in {(m.source, m.sent_in), (m.target, m.received_in)}:
            waiting[key] -= 1
            done_at[key] = max(done_at.get(key, 0), end)
        if group:
            heapq.heappush(heap, (end, 0, rank, at))
        for other in {m.source, m.target}:
            advance(other)
    return last


@dataclass(frozen=True, slots=True)
class Bound:
    """The least that any algorithm can do.

    Attributes
    ----------
    rounds : int
        Rounds.
    volume, reductions : Fraction
        Bytes sent and bytes reduced by a rank, in units of n.
    """

    rounds: int
    volume: Fraction
    reductions: Fraction


def lower_bound(collective: str, size: int) -> Bound:
    """The lower bounds of Chan et al. 2007 (doi:10.1002/cpe.1206).

    Each holds alone: no algorithm need reach all three. Broadcast and reduce are
    bounded by what a rank must receive or send, one full message.
    """
    rounds = (size - 1).bit_length()
    share = Fraction(size - 1, size)
    zero = Fraction(0)
    whole = Fraction(int(size > 1))
    match collective:
        case "allreduce":
            return Bound(rounds, 2 * share, share)
        case "allgather" | "alltoall":
            return Bound(rounds, share, zero)
        case "reduce_scatter":
            return Bound(rounds, share, share)
        case "broadcast":
            return Bound(rounds, whole, zero)
        case "reduce":
            return Bound(rounds, whole, share)
        case "gather" | "scatter":
            return Bound(rounds, share, zero)
        case "scan" | "exscan":
            return Bound(rounds, whole, whole)
    return Bound(rounds, zero, zero)
