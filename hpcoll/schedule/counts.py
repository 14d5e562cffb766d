"""What a schedule costs, counted from the schedule itself, and the lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hpcoll.schedule.operations import Chunk
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.timetable import timetable
from hpcoll.schedule.trace import Message, Trace


@dataclass(frozen=True, slots=True)
class Counts:
    """The cost of a schedule; of the busiest rank where ranks differ.

    Attributes
    ----------
    rounds : int
        The longest path of messages when a rank sends one and receives one at a time.
    messages : int
        Messages that a rank sends, or receives where those are more.
    volume : Fraction
        Bytes that a rank sends, or receives where those are more, in units of the
        message size n: ports are full duplex, so the busier direction takes the time.
    reductions : Fraction
        Bytes that a rank reduces, in units of n.
    touched : Fraction
        Bytes that a rank reads and writes to fold, and to pack and unpack messages of
        chunks that are no neighbours, in units of n: a fold of several operands in one
        pass touches less than as many folds of two.
    scratch : Fraction
        Scratch memory of a rank, in units of n.
    total : int
        Messages of all ranks.
    depth : int
        The longest chain of messages that depend on each other, ports without limit.
    path : Fraction
        Most bytes along such a chain, in units of n.
    """

    rounds: int
    messages: int
    volume: Fraction
    reductions: Fraction
    touched: Fraction
    scratch: Fraction
    total: int
    depth: int
    path: Fraction


def count(problems: list[Problem], trace: Trace) -> Counts:
    """Count a run of all ranks.

    The message size n is, as in nccl-tests, the whole vector for allreduce,
    broadcast, reduce and scan, the gathered or scattered total for the others; for
    alltoall what each rank sends in all, its own part included.
    """
    unit = unit_of(problems[0])
    depth, path = _longest_chains(len(problems), trace.messages)
    size = len(problems)
    # Of each rank: messages and chunks out, then in.
    messages, volume = [0] * (2 * size), [0] * (2 * size)
    touched = [f + 2 * n for f, n in zip(trace.folds, trace.passes, strict=True)]
    for m in trace.messages:
        if not are_neighbours(m.chunks):
            touched[m.source] += 2 * len(m.chunks)
            touched[m.target] += 2 * len(m.chunks)
        for port in (m.source, size + m.target):
            messages[port] += 1
            volume[port] += len(m.chunks)
    return Counts(
        rounds=max(timetable(trace), default=-1) + 1,
        messages=max(messages),
        volume=max(volume) * unit,
        reductions=max(trace.folds, default=0) * unit,
        touched=max(touched) * unit,
        scratch=max(trace.scratch, default=0) * unit,
        total=len(trace.messages),
        depth=depth,
        path=path * unit,
    )


def are_neighbours(chunks: Sequence[Chunk]) -> bool:
    """Whether chunks are one after the other, so that a message needs no packing."""
    if len(chunks) < 2:
        return True
    first, last = chunks[0], chunks[-1]
    return isinstance(first, int) and isinstance(last, int) and last - first == len(chunks) - 1


def unit_of(p: Problem) -> Fraction:
    """The size of a chunk, in units of the message size n."""
    parts = p.size if p.collective == "alltoall" else p.chunks
    return Fraction(1, parts) if parts else Fraction(0)


def _longest_chains(size: int, messages: list[Message]) -> tuple[int, int]:
    """The most messages, and the most chunks, along a chain of dependent messages.

    A message depends on what its sender received in earlier steps. Messages come in the
    order in which they matched, so those of a rank's earlier steps come first.
    """
    heard = [(0, 0)] * size  # the longest chains that end in earlier steps of each rank
    now = [(-1, 0, 0)] * size  # step, and the longest chains that end in it

    def before(rank: int, step: int) -> tuple[int, int]:
        at, count_, chunks = now[rank]
        if at >= step:
            return heard[rank]
        heard[rank] = max(heard[rank][0], count_), max(heard[rank][1], chunks)
        now[rank] = (step, 0, 0)
        return heard[rank]

    most = longest = 0
    for m in messages:
        count_, chunks = before(m.source, m.sent_in)
        count_, chunks = count_ + 1, chunks + len(m.chunks)
        before(m.target, m.received_in)
        at, old_count, old_chunks = now[m.target]
        now[m.target] = (at, max(old_count, count_), max(old_chunks, chunks))
        most, longest = max(most, count_), max(longest, chunks)
    return most, longest


@dataclass(frozen=True, slots=True)
class Bound:
    """The least that any algorithm can do.

    Attributes
    ----------
    rounds : int
        Rounds.
    volume, reductions : Fraction
        Bytes that a rank sends or receives, and bytes that it reduces, in units of n.
    """

    rounds: int
    volume: Fraction
    reductions: Fraction


def lower_bound(collective: str, size: int) -> Bound:
    """The lower bounds of Chan et al. 2007 (doi:10.1002/cpe.1206).

    Each holds alone: no algorithm need reach all three. Broadcast, reduce and scans
    are bounded by what a rank must receive or send, one full message.
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
        case "scan":
            return Bound(rounds, whole, whole)
        case "exscan":
            return Bound(rounds, whole, Fraction(int(size > 2)))
    return Bound(rounds, zero, zero)
