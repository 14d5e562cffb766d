"""Lowering: one rank's schedule becomes a table of int64 rows that an engine runs.

A row moves or folds memory, posts a message, or waits for those posted. The step's
meaning (sends carry what was there when it began, receives land when it ends) is
kept by the order of its rows: receives posted, sends posted, wait, then writes. What
can't be received in place is staged: messages to be folded, to be scattered over
several regions, or for a region that the same step still sends.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcoll.runtime.layout import Layout
from hpcoll.runtime.recipe import DST, SCRATCH, SRC, Recipe, Region, RowWriter
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.memory import Location, Memory
from hpcoll.schedule.operations import (
    Chunk,
    Fold,
    Incoming,
    Place,
    Recv,
    Send,
    Step,
    read_by,
    written_by,
)
from hpcoll.schedule.problem import Problem


def lower(
    algorithm: Algorithm,
    p: Problem,
    layout: Layout,
    *,
    aliased: bool = False,
    divisor: int = 0,
    lone: bool = False,
    message_limit: int = 1 << 62,
) -> Recipe:
    """Lower one rank's schedule.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    p : Problem
        This rank's problem.
    layout : Layout
        Where its chunks lie.
    aliased : bool
        Whether input and output are the same memory.
    divisor : int
        Divide the result by it: for averages.
    lone : bool
        Fold the result, which is one operand, by itself: a logical operator gives 0 or 1
        of one operand as well.
    message_limit : int
        Largest message of the transport, in bytes.
    """
    steps = algorithm.steps(p)
    copied = aliased and destroys_input(steps, p)
    lowering = _Lowering(p, layout, aliased and not copied, message_limit)
    if copied:
        lowering.copy_input()
    for number, step in enumerate(steps):
        lowering.out.step = number
        lowering.step(step)
    lowering.out.step = max(len(steps) - 1, 0)
    lowering.finish(divisor, lone)
    return lowering.out.finish(input_copied=copied)


def destroys_input(steps: Sequence[Step], p: Problem) -> bool:
    """Whether a schedule, run in place, reads an input after having overwritten it."""
    memory = Memory(p, aliased=True)
    lost: set[Location] = set()
    for step in steps:
        writer: dict[Location, int] = {}
        readers: list[tuple[int, Chunk]] = []
        sent: list[Chunk] = []
        written: list[Chunk] = []
        for i, op in enumerate(step):
            if isinstance(op, Send):
                sent.extend(op.chunks)
                continue
            targets = written_by(op)
            written.extend(targets)
            writer.update((memory.write(c), i) for c in targets)
            readers.extend((i, c) for group in read_by(op) for c in group)
        for chunk in sent:
            if memory.in_input(chunk) and memory.read(chunk) in lost:
                return True
        for i, chunk in readers:
            where = memory.read(chunk)
            if memory.in_input(chunk) and (where in lost or writer.get(where, i) != i):
                return True
        lost.update(writer)
        for chunk in written:
            memory.wrote(chunk)
    return any(memory.in_input(c) and memory.read(c) in lost for c in memory.outputs)


class _Lowering:
    """One rank's schedule on its way into rows."""

    def __init__(self, p: Problem, layout: Layout, aliased: bool, limit: int) -> None:
        self.layout = layout
        self.limit = limit
        self.memory = Memory(p, aliased=aliased)
        self.out = RowWriter()
        self._input: Region | None = None
        self._scratch: dict[Location, Region] = {}

    def copy_input(self) -> None:
        """Work on a copy of the input."""
        self._input = self.out.reserve(self.layout.src_nbytes)
        self.out.combine([Region(SRC, 0, self.layout.src_nbytes)], self._input)

    def step(self, step: Step) -> None:
        """Emit the rows of one step."""
        out = self.out
        sends = [op for op in step if isinstance(op, Send)]
        sent = {self.memory.read(c) for op in sends for c in op.chunks}
        outgoing = [self._regions(op.chunks) for op in sends]
        others = [op for op in step if not isinstance(op, Send)]
        written = [written_by(op) for op in others]
        targets = [self._targets(chunks) for chunks in written]
        local = [[self._regions(group) for group in read_by(op)] for op in others]
        mark = out.scratch  # what is reserved from here on serves this step alone
        late: list[tuple[list[list[Region]], list[Region]]] = []
        for op, chunks, into, operands in zip(others, written, targets, local, strict=True):
            if isinstance(op, Recv):
                clash = any(self.memory.write(c) in sent for c in chunks)
                landing = self._receive(into, op.peer, op.lane, bool(chunks), clash)
                if landing != into:
                    late.append(([landing], into))
                continue
            if isinstance(op, Fold):
                for i, o in enumerate(op.operands):
                    if isinstance(o, Incoming):
                        operands.insert(i, self._receive(into, o.peer, o.lane, True, True))
            late.append((operands, into))
        for message, regions in zip(sends, outgoing, strict=True):
            nbytes = sum(r.nbytes for r in regions)
            if message.chunks and not nbytes:
                continue
            whole = _merged([regions])
            packed = whole[0][0] if len(whole) == 1 else self._pack(regions, nbytes)
            for peer in message.peers:
                out.send(packed, peer, message.lane, self.limit)
        out.wait()
        for sources, into in late:
            for group in _merged([*sources, into]):
                out.combine(group[:-1], group[-1])
        out.release_to(mark)
        for chunks in written:
            for chunk in chunks:
                self.memory.wrote(chunk)

    def finish(self, divisor: int, lone: bool) -> None:
        """Put outputs that no step wrote in their place, and divide for an average."""
        outputs = sorted(self.memory.outputs, key=lambda c: self.layout.dst[c])
        sources = self._regions(outputs)
        targets = [Region(DST, self.layout.dst[c], self.layout.nbytes[c]) for c in outputs]
        moved = [(s, t) for s, t in zip(sources, targets, strict=True) if s != t]
        for group in _merged([[s for s, _ in moved], [t for _, t in moved]]):
            self.out.combine(group[:-1], group[-1])
        for group in _merged([targets]):
            self.out.complete(group[0], divisor, lone)

    def _regions(self, chunks: Sequence[Chunk]) -> list[Region]:
        return [self._region(self.memory.read(c), c) for c in chunks]

    def _targets(self, chunks: Sequence[Chunk]) -> list[Region]:
        return [self._region(self.memory.write(c), c) for c in chunks]

    def _region(self, where: Location, chunk: Chunk) -> Region:
        nbytes = self.layout.nbytes[chunk.chunk if isinstance(chunk, Place) else chunk]  # type: ignore[index]
        if where.area == "src":
            offset = self.layout.src[where.key]  # type: ignore[index]
            if self._input is not None:
                return Region(SCRATCH, self._input.offset + offset, nbytes)
            return Region(SRC, offset, nbytes)
        if where.area == "dst":
            return Region(DST, self.layout.dst[where.key], nbytes)  # type: ignore[index]
        found = self._scratch.get(where)
        if found is None:
            found = self._scratch[where] = self.out.reserve(nbytes)
        return found

    def _receive(
        self, targets: list[Region], peer: int, lane: int, chunks: bool, stage: bool
    ) -> list[Region]:
        """Post the receive of a message; return where each of its chunks will be."""
        nbytes = sum(r.nbytes for r in targets)
        if chunks and not nbytes:
            return targets
        whole = _merged([targets])
        if not stage and len(whole) <= 1:
            landing = whole[0][0] if whole else Region(SCRATCH, 0, 0)
            self.out.recv(landing, peer, lane, self.limit)
            return targets
        landing = self.out.reserve(nbytes)
        self.out.recv(landing, peer, lane, self.limit)
        return _split(landing, targets)

    def _pack(self, regions: list[Region], nbytes: int) -> Region:
        """Gather several regions into one."""
        if not nbytes:
            return Region(SCRATCH, 0, 0)
        packed = self.out.reserve(nbytes)
        for group in _merged([regions, _split(packed, regions)]):
            self.out.combine(group[:-1], group[-1])
        return packed


def _split(whole: Region, like: Sequence[Region]) -> list[Region]:
    """Cut a region into pieces of given sizes."""
    at = whole.offset
    pieces = []
    for region in like:
        pieces.append(Region(whole.base, at, region.nbytes))
        at += region.nbytes
    return pieces


def _merged(columns: Sequence[Sequence[Region]]) -> list[list[Region]]:
    """Rows of regions, neighbours joined where they are adjacent in every column.

    Each column is one operand's regions, of equal sizes across columns; empty ones
    are left out.
    """
    groups: list[list[Region]] = []
    for row in zip(*columns, strict=True):
        if not row[0].nbytes:
            continue
        if groups and all(
            a.base == b.base and a.offset + a.nbytes == b.offset
            for a, b in zip(groups[-1], row, strict=True)
        ):
            groups[-1] = [
                Region(a.base, a.offset, a.nbytes + b.nbytes)
                for a, b in zip(groups[-1], row, strict=True)
            ]
        else:
            groups.append(list(row))
    return groups
