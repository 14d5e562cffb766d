"""Run all ranks of a schedule on symbols, under the hardest legal timing.

Sends are taken as rendezvous: they complete only when the receiver has reached the
matching receive. A schedule that passes so can't depend on buffering. Messages match
first in first out for each (source, target, lane).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpcoll.errors import ScheduleError
from hpcoll.schedule.memory import Location, Memory
from hpcoll.schedule.operations import Chunk, Copy, Fold, Incoming, Recv, Send, Step, messages_in
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.symbols import Symbols, rank_list


class Fault(ScheduleError):
    """A counterexample: what is wrong with a schedule, and where.

    Attributes
    ----------
    kind : str
        Short name of the kind of fault.
    rank, step : int or None
        Where it is.
    """

    def __init__(self, kind: str, text: str, rank: int | None = None, step: int | None = None):
        where = "" if rank is None else f"rank {rank}" + ("" if step is None else f" step {step}")
        super().__init__(f"{kind}: {where}{': ' if where else ''}{text}")
        self.kind = kind
        self.rank = rank
        self.step = step


class Message(NamedTuple):
    """One message of a run, with the step numbers at both ends."""

    source: int
    sent_in: int
    target: int
    received_in: int
    chunks: tuple[Chunk, ...]


@dataclass
class Trace:
    """What a run did.

    Attributes
    ----------
    messages : list of Message
        In the order in which they matched.
    folds : list of int
        For each rank, chunks folded: operands less one, for each chunk of a fold.
    scratch : list of int
        For each rank, the most scratch chunks in use.
    memories : list of Memory
        For each rank, its final memory.
    values : list of dict
        For each rank, the value at each location.
    heard : list of int
        For each rank, a bit mask of the ranks that it heard from, directly or not.
    """

    messages: list[Message] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    values: list[dict[Location, int]] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)


SizeOf = Callable[[Chunk], int]


class _Posted(NamedTuple):
    """A send that waits for its receive."""

    step: int
    values: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class Simulation:
    """All ranks of one schedule.

    Parameters
    ----------
    problems : sequence of Problem
        One a rank.
    schedules : sequence of list of Step
        One a rank.
    symbols : Symbols
        Where values are kept.
    size_of : callable
        Size of a chunk, to find messages that differ at their ends.
    aliased : bool
        In place.
    eager : bool
        Sends complete at once: only to tell why a schedule got stuck.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        schedules: Sequence[list[Step]],
        symbols: Symbols,
        size_of: SizeOf,
        *,
        aliased: bool = False,
        eager: bool = False,
    ) -> None:
        self.size = len(problems)
        self.schedules = schedules
        self.symbols = symbols
        self.size_of = size_of
        self.eager = eager
        self.trace = Trace()
        self.memories = [Memory(p, aliased=aliased) for p in problems]
        self.values: list[dict[Location, int]] = []
        for memory in self.memories:
            r = memory.problem.rank
            self.values.append({memory.source(c): symbols.leaf(r, c) for c in memory.inputs})
        self.heard = [1 << r for r in range(self.size)]
        self._step = [0] * self.size
        self._pending = [0] * self.size
        self._inbox: list[list[tuple[_Posted, int] | None]] = [[] for _ in range(self.size)]
        self._sends: dict[tuple[int, int, int], deque[tuple[_Posted, int]]] = {}
        self._recvs: dict[tuple[int, int, int], deque[tuple[int, int]]] = {}
        self._folds = [0] * self.size
        self._staged = [0] * self.size
        self._scratch: list[set[Location]] = [set() for _ in range(self.size)]

    def run(self) -> Trace:
        """Run to the end.

        Raises
        ------
        Fault
            The first fault that was found.
        """
        ready = deque(range(self.size))
        entered = [False] * self.size
        while ready:
            r = ready.popleft()
            while self._step[r] < len(self.schedules[r]):
                if not entered[r]:
                    self._enter(r, self.schedules[r][self._step[r]], ready)
                    entered[r] = True
                if self._pending[r]:
                    break
                self._complete(r, self.schedules[r][self._step[r]])
                self._step[r] += 1
                entered[r] = False
        self._check_ended()
        self.trace.folds = self._folds
        self.trace.scratch = [len(s) + n for s, n in zip(self._scratch, self._staged, strict=True)]
        self.trace.memories = self.memories
        self.trace.values = self.values
        self.trace.heard = self.heard
        return self.trace

    def _enter(self, r: int, step: Step, ready: deque[int]) -> None:
        """Post the sends and receives of a step."""
        s, memory = self._step[r], self.memories[r]
        try:
            _check_races(step, memory)
        except ScheduleError as error:
            kind = error.kind if isinstance(error, Fault) else _kind_of(error)
            raise Fault(kind, str(error).removeprefix(f"{kind}: "), r, s) from None
        inbox: list[tuple[_Posted, int] | None] = []
        self._inbox[r] = inbox
        for op in step:
            if isinstance(op, Send):
                self._check_peers(r, s, op.peers)
                posted = _Posted(s, tuple(self._value(r, c, "sends") for c in op.chunks), op.chunks)
                for peer in op.peers:
                    key = (r, peer, op.lane)
                    waiting = self._recvs.get(key)
                    if waiting:
                        at, slot = waiting.popleft()
                        self._inbox[peer][slot] = (posted, self.heard[r])
                        self.trace.messages.append(Message(r, s, peer, at, op.chunks))
                        self._pending[peer] -= 1
                        if not self._pending[peer]:
                            ready.append(peer)
                    else:
                        self._sends.setdefault(key, deque()).append((posted, self.heard[r]))
                        if not self.eager:
                            self._pending[r] += 1
            for message in messages_in(op):
                self._check_peers(r, s, (message.peer,))
                key = (message.peer, r, message.lane)
                queue = self._sends.get(key)
                if queue:
                    inbox.append(queue.popleft())
                    sent = inbox[-1]
                    assert sent is not None
                    self.trace.messages.append(
                        Message(message.peer, sent[0].step, r, s, sent[0].chunks)
                    )
                    if not self.eager:
                        self._pending[message.peer] -= 1
                        if not self._pending[message.peer]:
                            ready.append(message.peer)
                else:
                    self._recvs.setdefault(key, deque()).append((s, len(inbox)))
                    inbox.append(None)
                    self._pending[r] += 1

    def _complete(self, r: int, step: Step) -> None:
        """Carry out the writes of a step, whose messages are all there."""
        arrived = iter(self._inbox[r])
        writes: list[tuple[tuple[Chunk, ...], list[int]]] = []
        staged = 0
        for op in step:
            if isinstance(op, Recv):
                writes.append((op.chunks, self._arrival(r, op.chunks, arrived)))
            elif isinstance(op, Copy):
                self._check_lengths(r, op.to, op.source)
                writes.append((op.to, [self._value(r, c, "copies") for c in op.source]))
            elif isinstance(op, Fold):
                columns: list[list[int]] = []
                for operand in op.operands:
                    if isinstance(operand, Incoming):
                        columns.append(self._arrival(r, op.into, arrived))
                        staged += len(op.into)
                    else:
                        self._check_lengths(r, op.into, operand)
                        columns.append([self._value(r, c, "folds") for c in operand])
                writes.append((op.into, [self.symbols.fold(v) for v in zip(*columns, strict=True)]))
                self._folds[r] += (len(op.operands) - 1) * len(op.into)
        for chunks, values in writes:
            for chunk, value in zip(chunks, values, strict=True):
                location = self.memories[r].write(chunk)
                self.memories[r].wrote(chunk)
                self.values[r][location] = value
                if location.area == "scratch":
                    self._scratch[r].add(location)
        self._staged[r] = max(self._staged[r], staged)

    def _arrival(self, r: int, chunks: tuple[Chunk, ...], arrived: object) -> list[int]:
        item = next(arrived)  # type: ignore[call-overload]
        posted, heard = item
        self.heard[r] |= heard
        sizes = [self.size_of(c) for c in chunks]
        sent = [self.size_of(c) for c in posted.chunks]
        if sizes != sent:
            raise Fault(
                "mis-sized message",
                f"expects chunks {list(chunks)} of sizes {sizes}, but step {posted.step} of the "
                f"sender sent chunks {list(posted.chunks)} of sizes {sent}",
                r,
                self._step[r],
            )
        return list(posted.values)

    def _value(self, r: int, chunk: Chunk, verb: str) -> int:
        try:
            location = self.memories[r].read(chunk)
        except ScheduleError as error:
            raise Fault(_kind_of(error), str(error), r, self._step[r]) from None
        value = self.values[r].get(location)
        if value is None:
            raise Fault(
                "nothing there",
                f"{verb} chunk {chunk}, which has not been filled yet",
                r,
                self._step[r],
            )
        return value

    def _check_peers(self, r: int, s: int, peers: tuple[int, ...]) -> None:
        for peer in peers:
            if not isinstance(peer, int) or not 0 <= peer < self.size:
                raise Fault("no such rank", f"names rank {peer} of {self.size} ranks", r, s)
            if peer == r:
                raise Fault("message to itself", "use copy for a rank's own chunks", r, s)
        if len(set(peers)) != len(peers):
            raise Fault("peer named twice", f"one send names ranks {list(peers)}", r, s)

    def _check_lengths(self, r: int, to: tuple[Chunk, ...], source: tuple[Chunk, ...]) -> None:
        if [self.size_of(c) for c in to] != [self.size_of(c) for c in source]:
            raise Fault(
                "mis-sized operand",
                f"chunks {list(source)} don't have the sizes of {list(to)}",
                r,
                self._step[r],
            )

    def _check_ended(self) -> None:
        stuck = [r for r in range(self.size) if self._step[r] < len(self.schedules[r])]
        if not stuck:
            left = [(key, q[0][0]) for key, q in self._sends.items() if q]
            if left:
                (source, target, _), posted = left[0]
                raise Fault(
                    "unmatched send", f"rank {target} never receives it", source, posted.step
                )
            return
        waits: dict[int, set[int]] = {r: set() for r in stuck}
        for (source, target, _), receives in self._recvs.items():
            if receives:
                at = receives[0][0]
                if source not in waits:
                    raise Fault("unmatched receive", f"rank {source} never sends it", target, at)
                waits[target].add(source)
        for (source, target, _), sends in self._sends.items():
            if sends and not self.eager:
                if target not in waits:
                    raise Fault(
                        "unmatched send",
                        f"rank {target} never receives it",
                        source,
                        sends[0][0].step,
                    )
                if source in waits:
                    waits[source].add(target)
        cycle = _cycle(waits)
        path = " -> ".join(f"rank {r} (step {self._step[r]})" for r in cycle)
        raise Fault("deadlock", f"each waits for the next: {path}", cycle[0], self._step[cycle[0]])


def _cycle(waits: dict[int, set[int]]) -> list[int]:
    """A cycle of the wait-for graph, its first rank repeated at the end."""
    rank = min(waits)
    path: list[int] = []
    while rank not in path:
        path.append(rank)
        rank = min(waits[rank])
    return [*path[path.index(rank) :], rank]


def _kind_of(error: ScheduleError) -> str:
    text = str(error)
    if "out of range" in text:
        return "chunk out of range"
    if "read-only" in text:
        return "write to the input"
    return "nothing there"


def _check_races(step: Step, memory: Memory) -> None:
    """Refuse two operations of a step that touch one region, unless one only sends it."""
    if len(step) < 2 and not any(
        isinstance(op, (Recv, Fold)) and len(op.chunks if isinstance(op, Recv) else op.into) > 1
        for op in step
    ):
        for op in step:
            if isinstance(op, Recv):
                for c in op.chunks:
                    memory.write(c)
        return
    writers: dict[Location, int] = {}
    readers: dict[Location, set[int]] = {}
    for i, op in enumerate(step):
        if isinstance(op, Send):
            continue
        targets = op.chunks if isinstance(op, Recv) else op.to if isinstance(op, Copy) else op.into
        for chunk in targets:
            where = memory.write(chunk)
            if where in writers:
                raise Fault("race", f"two operations of the step write chunk {chunk}")
            writers[where] = i
        groups: list[tuple[Chunk, ...]] = []
        if isinstance(op, Copy):
            groups = [op.source]
        elif isinstance(op, Fold):
            groups = [o for o in op.operands if not isinstance(o, Incoming)]
        for group in groups:
            for chunk in group:
                readers.setdefault(memory.read(chunk), set()).add(i)
    for where, by in readers.items():
        writer = writers.get(where)
        if writer is not None and by != {writer}:
            raise Fault(
                "race",
                f"one operation of the step reads {where.area} {where.key}, another writes it",
            )


def describe_missing(symbols: Symbols, value: int | None, want: int) -> str:
    """What of a mask of contributions a value lacks, in words."""
    have = symbols.mask[value] if value is not None else 0
    lack = want & ~have
    return f"missing: rank {rank_list(lack)}" if lack else ""
