"""Run all ranks of a schedule on symbols, under the hardest legal timing.

Sends are taken as rendezvous: they complete only when the receiver has reached the
matching receive. A schedule that passes so can't depend on buffering. Messages match
first in first out for each (source, target, lane).

Chunks are told apart by their numbers, so one run stands for chunks of equal and of
unequal sizes. The run is out of place; what would go wrong in place is noted beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.deadlock import Key, find_stuck
from hpcoll.schedule.faults import Fault, check_step, chunk_list, is_simple, same_sizes, unreadable
from hpcoll.schedule.memory import Memory
from hpcoll.schedule.operations import (
    Chunk,
    Copy,
    Fold,
    Incoming,
    Place,
    Recv,
    Send,
    Step,
    checked_lane,
)
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.symbols import Symbols
from hpcoll.schedule.trace import Message, Trace

__all__ = ["Fault", "Message", "Simulation", "Trace"]


class _Posted(NamedTuple):
    """A send that waits for its receive."""

    rank: int
    step: int
    order: int
    values: Sequence[int]
    chunks: tuple[Chunk, ...]
    heard: int


class _Rank:
    """The state of one rank."""

    __slots__ = (
        "ended", "folds", "heard", "held", "inbox", "inputs", "lost", "memory", "number",
        "passes", "pending", "sends", "staged", "step", "under", "written",
    )  # fmt: skip

    def __init__(self, p: Problem, symbols: Symbols) -> None:
        kind = COLLECTIVES[p.collective]
        self.memory = Memory(p)
        self.inputs: dict[object, int] = {c: symbols.leaf(p.rank, c) for c in self.memory.inputs}
        self.held: dict[Chunk, int] = dict(self.inputs)  # type: ignore[arg-type]
        self.written: set[Chunk] = set()
        self.under: dict[object, object] = {o: i for i, o in kind.alias(p).items()}
        self.lost: set[object] = set()
        self.number = 0
        self.step: Step | None = None
        self.ended = False
        self.pending = 0
        self.sends = 0
        self.inbox: list[_Posted | None] = []
        self.heard = 1 << p.rank
        self.folds = 0
        self.passes = 0
        self.staged = 0

    def held_input(self, chunk: Chunk) -> object:
        """The input chunk that a chunk still stands for; None where it was written."""
        if isinstance(chunk, Place):
            return chunk.chunk if chunk.buffer == "src" else None
        return None if chunk in self.written else chunk

    def output_lost(self) -> bool:
        """Whether an output that is an input's copy is overwritten in place."""
        outputs = self.memory.outputs
        return any(c in outputs and c not in self.written for c in self.lost)

    def scratch(self) -> int:
        """Chunks of scratch memory in use."""
        outputs = self.memory.outputs
        return self.staged + sum(isinstance(c, Place) or c not in outputs for c in self.written)


class Simulation:
    """All ranks of one schedule.

    Parameters
    ----------
    problems : sequence of Problem
        One a rank.
    schedules : sequence of iterables of Step
        One a rank; read step by step, as the run gets there.
    symbols : Symbols
        Where values are kept.
    eager : bool
        Sends complete at once: only to tell why a schedule got stuck.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        schedules: Sequence[Iterable[Step]],
        symbols: Symbols,
        *,
        eager: bool = False,
    ) -> None:
        self.size = len(problems)
        self.symbols = symbols
        self.eager = eager
        self.trace = Trace()
        self.ranks = [_Rank(p, symbols) for p in problems]
        self._schedules = [iter(schedule) for schedule in schedules]
        self._listens = problems[0].collective == "barrier"
        self._ready = deque(range(self.size))
        # By source, target and lane: what waits for its counterpart, oldest first.
        self._sends: dict[Key, list[_Posted]] = {}
        self._recvs: dict[Key, list[tuple[int, int]]] = {}

    def run(self) -> Trace:
        """Run to the end.

        Raises
        ------
        Fault
            The first fault that was found.
        """
        while self._ready:
            r = self._ready.popleft()
            rank, schedule = self.ranks[r], self._schedules[r]
            try:
                while not rank.pending:
                    if rank.step is not None:
                        self._complete(rank, rank.step)
                        rank.number += 1
                    rank.step = next(schedule, None)
                    if rank.step is None:
                        rank.ended = True
                        break
                    self._enter(r, rank, rank.step)
            except Fault as fault:
                if fault.rank is None:
                    raise Fault(fault.kind, fault.text, r, rank.number) from None
                raise
        find_stuck(
            {r: rank.number for r, rank in enumerate(self.ranks) if not rank.ended},
            {key: [s.step for s in queue] for key, queue in self._sends.items()},
            {key: [at for at, _ in queue] for key, queue in self._recvs.items()},
            eager=self.eager,
        )
        if any(rank.output_lost() for rank in self.ranks):
            self.trace.in_place = False
        self.trace.steps = [rank.number for rank in self.ranks]
        self.trace.folds = [rank.folds for rank in self.ranks]
        self.trace.passes = [rank.passes for rank in self.ranks]
        self.trace.scratch = [rank.scratch() for rank in self.ranks]
        self.trace.held = [rank.held for rank in self.ranks]
        self.trace.heard = [rank.heard for rank in self.ranks]
        return self.trace

    def _enter(self, r: int, rank: _Rank, step: Step) -> None:
        """Post the sends and receives of a step."""
        if not is_simple(step, rank.memory) and not check_step(
            step, rank.memory, rank.held_input, rank.under
        ):
            self.trace.in_place = False
        rank.inbox = []
        for op in step:
            if isinstance(op, Send):
                peers, chunks, lane = op
                values = self._values(rank, chunks, "sends")
                if len(peers) > 1 and len(set(peers)) != len(peers):
                    raise Fault("peer named twice", f"one send names ranks {list(peers)}")
                for peer in peers:
                    self._check_peer(r, peer, lane)
                    posted = _Posted(r, rank.number, rank.sends, values, chunks, rank.heard)
                    rank.sends += 1
                    self._post(rank, posted, peer, lane)
            elif isinstance(op, Recv):
                self._expect(r, rank, op.peer, op.lane)
            elif isinstance(op, Fold):
                for operand in op.operands:
                    if isinstance(operand, Incoming):
                        self._expect(r, rank, operand.peer, operand.lane)

    def _post(self, rank: _Rank, posted: _Posted, peer: int, lane: int) -> None:
        key = (posted.rank, peer, lane)
        waiting = self._recvs.pop(key, None)
        if waiting is None:
            self._sends.setdefault(key, []).append(posted)
            if not self.eager:
                rank.pending += 1
            return
        at, slot = waiting.pop(0)
        if waiting:
            self._recvs[key] = waiting
        self.ranks[peer].inbox[slot] = posted
        self._matched(posted, peer, at)
        self._release(peer)

    def _expect(self, r: int, rank: _Rank, peer: int, lane: int) -> None:
        self._check_peer(r, peer, lane)
        key = (peer, r, lane)
        sent = self._sends.pop(key, None)
        if sent is None:
            self._recvs.setdefault(key, []).append((rank.number, len(rank.inbox)))
            rank.inbox.append(None)
            rank.pending += 1
            return
        posted = sent.pop(0)
        if sent:
            self._sends[key] = sent
        rank.inbox.append(posted)
        self._matched(posted, r, rank.number)
        if not self.eager:
            self._release(peer)

    def _matched(self, posted: _Posted, target: int, at: int) -> None:
        source, step, order, _, chunks, _ = posted
        self.trace.messages.append(Message(source, step, target, at, chunks, order))

    def _release(self, r: int) -> None:
        """One message less to wait for."""
        rank = self.ranks[r]
        rank.pending -= 1
        if not rank.pending:
            self._ready.append(r)

    def _complete(self, rank: _Rank, step: Step) -> None:
        """Carry out the writes of a step, whose messages are all there."""
        arrived = iter(rank.inbox)
        chunks: list[Chunk] = []
        values: list[int] = []
        staged = 0
        for op in step:
            if isinstance(op, Send):
                continue
            if isinstance(op, Recv):
                chunks += op.chunks
                values += self._arrival(rank, op.chunks, arrived)
            elif isinstance(op, Copy):
                chunks += op.to
                values += self._operand(rank, op.to, op.source, "copies")
            else:
                into, operands = op
                columns: list[Sequence[int]] = []
                for operand in operands:
                    if isinstance(operand, Incoming):
                        columns.append(self._arrival(rank, into, arrived))
                        staged += len(into)
                    else:
                        columns.append(self._operand(rank, into, operand, "folds"))
                chunks += into
                values += map(self.symbols.fold, zip(*columns, strict=True))
                rank.folds += (len(operands) - 1) * len(into)
                rank.passes += len(into)
        rank.held.update(zip(chunks, values, strict=True))
        rank.written.update(chunks)
        if rank.under:
            self._note_lost(rank, chunks, values)
        if staged > rank.staged:
            rank.staged = staged

    def _note_lost(self, rank: _Rank, chunks: list[Chunk], values: list[int]) -> None:
        """Note which inputs an in-place call would have overwritten, and which are back."""
        under, inputs, lost = rank.under, rank.inputs, rank.lost
        for chunk, value in zip(chunks, values, strict=True):
            if chunk in under:
                below = under[chunk]
                if value == inputs[below]:
                    lost.discard(below)
                else:
                    lost.add(below)

    def _arrival(
        self, rank: _Rank, chunks: tuple[Chunk, ...], arrived: Iterator[_Posted | None]
    ) -> Sequence[int]:
        posted = next(arrived)
        assert posted is not None
        if self._listens:
            rank.heard |= posted.heard
        if chunks != posted.chunks and not same_sizes(chunks, posted.chunks):
            raise Fault(
                "mis-sized message",
                f"expects {chunk_list(chunks)}, but rank {posted.rank} step {posted.step} sent "
                f"{chunk_list(posted.chunks)}: chunks differ in size, so both ends must name "
                f"the same ones in the same order",
            )
        return posted.values

    def _operand(
        self, rank: _Rank, to: tuple[Chunk, ...], source: tuple[Chunk, ...], verb: str
    ) -> Sequence[int]:
        if to != source and not same_sizes(to, source):
            raise Fault(
                "mis-sized operand",
                f"{verb} {chunk_list(source)} into {chunk_list(to)}: chunks differ in size, "
                f"so both must be the same ones",
            )
        return self._values(rank, source, verb)

    def _values(self, rank: _Rank, chunks: tuple[Chunk, ...], verb: str) -> Sequence[int]:
        """What chunks hold, all at once where each is held and none is lost in place."""
        if not rank.lost or rank.written.issuperset(chunks):
            try:
                values = [rank.held[c] for c in chunks]
            except (KeyError, TypeError):
                pass
            else:
                return values
        return [self._value(rank, c, verb) for c in chunks]

    def _value(self, rank: _Rank, chunk: Chunk, verb: str) -> int:
        try:
            value = rank.held.get(chunk)
        except TypeError:
            raise Fault(
                "chunk out of range", f"{verb} {chunk!r}, which is not one chunk: unpack it with *"
            ) from None
        if isinstance(chunk, Place) and chunk.buffer == "src":
            value = rank.inputs.get(chunk.chunk)
        if value is None:
            raise Fault(*unreadable(rank.memory, chunk, verb))
        if rank.lost and rank.held_input(chunk) in rank.lost:
            self.trace.in_place = False
        return value

    def _check_peer(self, r: int, peer: int, lane: int) -> None:
        if not isinstance(peer, int) or not 0 <= peer < self.size:
            raise Fault("no such rank", f"names rank {peer!r}, but ranks are 0..{self.size - 1}")
        if peer == r:
            raise Fault("message to itself", f"names rank {peer}: use copy for own chunks")
        if lane:
            checked_lane(lane)
