"""Lowering: one rank's schedule becomes a table of int64 rows that an engine runs.

A row moves or folds memory, posts a message, or waits for those posted. The step's
meaning (sends carry what was there when it began, receives land when it ends) is
kept by the order of its rows: receives posted, sends posted, wait, then writes. What
can't be received in place is staged: messages to be folded, to be scattered over
several regions, or for a region that the same step still sends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from hpcoll.runtime.layout import Layout, PairLayout
from hpcoll.runtime.places import Numbered, Paired, Places
from hpcoll.runtime.recipe import DST, SCRATCH, SRC, Recipe, Region, RowWriter
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.memory import Location, Memory
from hpcoll.schedule.operations import (
    Chunk,
    Fold,
    Incoming,
    Operation,
    Place,
    Recv,
    Send,
    Step,
    read_by,
    written_by,
)
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.uncollected import uncollected

EMPTY: Region = (SCRATCH, 0, 0)


def lower(
    algorithm: Algorithm,
    p: Problem,
    layout: Layout | PairLayout,
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
    with uncollected():
        steps = algorithm.steps(p)
        copied = aliased and destroys_input(steps, p)
        lowering = _Lowering(p, layout, aliased and not copied, message_limit, steps)
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
    if p.collective != "alltoall" and not any(map(_reads_src, steps)):
        return False  # each chunk lies where its result will: once written it is that
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


def _reads_src(step: Step) -> bool:
    for op in step:
        for group in (op.chunks,) if type(op) is Send else read_by(op):
            for c in group:
                if type(c) is Place and c.buffer == "src":
                    return True
    return False


class _Lowering:
    """One rank's schedule on its way into rows."""

    def __init__(
        self,
        p: Problem,
        layout: Layout | PairLayout,
        aliased: bool,
        limit: int,
        steps: Sequence[Step],
    ) -> None:
        self.layout = layout
        self.limit = limit
        self.out = RowWriter()
        self.places: Places
        if isinstance(layout, PairLayout):
            self.places = Paired(p, layout, self.out, aliased)
        else:
            self.places = Numbered(p, layout, self.out, aliased, steps)
        self._copy: Region | None = None

    def copy_input(self) -> None:
        """Work on a copy of the input."""
        self._copy = self.out.reserve(self.layout.src_nbytes)
        self.out.combine([(SRC, 0, self.layout.src_nbytes)], self._copy)

    def step(self, step: Step) -> None:
        """Emit the rows of one step."""
        if len(step) == 2 and self._exchange(step):
            return
        out, places = self.out, self.places
        outgoing: list[tuple[Send, list[Region]]] = []
        todo: list[tuple[Operation, tuple[Chunk, ...], list[Region], list[list[Region]]]] = []
        for op in step:
            if type(op) is Send:
                outgoing.append((op, self._read(op.chunks)))
            else:
                chunks = written_by(op)
                columns = [self._read(group) for group in read_by(op)]
                todo.append((op, chunks, places.write(chunks), columns))
        mark = out.scratch  # what is reserved from here on serves this step alone
        late: list[list[list[Region]]] = []
        sent: _Sent | None = None
        for op, chunks, into, columns in todo:
            if type(op) is Recv:
                sent = sent or _Sent([region for _, regions in outgoing for region in regions])
                landing = self._receive(into, op, bool(chunks), sent)
                if landing is into:
                    continue
                columns.append(landing)
            elif type(op) is Fold:
                for i, operand in enumerate(op.operands):
                    if type(operand) is Incoming:
                        columns.insert(i, self._receive(into, operand, True, None))
            columns.append(into)
            late.append(columns)
        for message, regions in outgoing:
            if message.chunks and not regions:
                continue
            packed = regions[0] if len(regions) == 1 else self._pack(regions)
            for peer in message.peers:
                out.send(packed, peer, message.lane, self.limit)
        out.wait()
        for columns in late:
            if all(map(_single, columns)):
                *sources, (target,) = columns
                out.combine([source for (source,) in sources], target)
                continue
            for row in _rows(columns):
                out.combine(row[:-1], row[-1])
        out.release_to(mark)
        for _, chunks, _, _ in todo:
            places.wrote(chunks)

    def _exchange(self, step: Step) -> bool:
        """Emit a step of the commonest kind, which rings have by the thousand.

        One chunk goes to one rank, and another one comes from one and is folded at most
        with what is there. The rows are those that any step would get, sooner.
        """
        message, op = step
        places = self.places
        if type(message) is not Send or type(places) is not Numbered or self._copy is not None:
            return False
        peers, sent, lane = message
        got = written_by(op)
        if lane or len(peers) != 1 or len(sent) != 1 or len(got) != 1 or sent == got:
            return False
        region, home = places.single(sent[0]), places.single(got[0], home=True)
        if region is None or home is None or not region[2] or not home[2]:
            return False
        if region[2] > self.limit or home[2] > self.limit:
            return False
        if type(op) is Recv:
            if op.lane:
                return False
            self.out.exchange(home, op.peer, region, peers[0])
        elif type(op) is Fold and len(op.operands) == 2:
            first, second = op.operands
            ordered = type(first) is Incoming
            source, own = (first, second) if ordered else (second, first)
            now = places.single(got[0])
            if type(source) is not Incoming or source.lane or own != got or now is None:
                return False
            out = self.out
            mark = out.scratch
            landing = out.reserve(home[2])
            out.exchange(landing, source.peer, region, peers[0])
            out.combine((landing, now) if ordered else (now, landing), home)
            out.release_to(mark)
        else:
            return False
        places.wrote(got)
        return True

    def finish(self, divisor: int, lone: bool) -> None:
        """Put outputs that no step wrote in their place, and divide for an average."""
        moves = list(self.places.unmoved())
        sources, targets = self._from_copy([s for s, _ in moves]), [t for _, t in moves]
        for source, target in _rows([_joined(sources), _joined(targets)]):
            self.out.combine([source], target)
        self.out.complete((DST, 0, self.layout.dst_nbytes), divisor, lone)

    def _read(self, chunks: Sequence[Chunk]) -> list[Region]:
        regions = self.places.read(chunks)
        return regions if self._copy is None else self._from_copy(regions)

    def _from_copy(self, regions: list[Region]) -> list[Region]:
        """What is read of the input comes from its copy, if there is one."""
        if self._copy is None:
            return regions
        start = self._copy[1]
        return [
            (SCRATCH, start + at, n) if base == SRC else (base, at, n) for base, at, n in regions
        ]

    def _receive(
        self, targets: list[Region], message: Recv | Incoming, chunks: bool, sent: _Sent | None
    ) -> list[Region]:
        """Post the receive of a message; return where it will be.

        It lands where it is wanted, but for a fold, for several regions, and where the
        same step still sends what is there.
        """
        if not targets:
            if not chunks:
                self.out.recv(EMPTY, message.peer, message.lane, self.limit)
            return targets
        if sent is not None and len(targets) == 1 and not sent.touches(targets[0]):
            self.out.recv(targets[0], message.peer, message.lane, self.limit)
            return targets
        landing = self.out.reserve(sum([n for _, _, n in targets]))
        self.out.recv(landing, message.peer, message.lane, self.limit)
        return [landing]

    def _pack(self, regions: list[Region]) -> Region:
        """Gather several regions into one."""
        if not regions:
            return EMPTY
        packed = self.out.reserve(sum([n for _, _, n in regions]))
        for source, target in _rows([regions, [packed]]):
            self.out.combine([source], target)
        return packed


class _Sent:
    """What a step sends, to be asked whether something overlaps it."""

    def __init__(self, regions: list[Region]) -> None:
        self._regions = sorted(regions)

    def touches(self, region: Region) -> bool:
        """Whether a region overlaps one of them."""
        base, offset, nbytes = region
        i = bisect_right(self._regions, (base, offset + nbytes))
        if not i:
            return False
        other, at, size = self._regions[i - 1]
        return other == base and at + size > offset


def _joined(regions: list[Region]) -> list[Region]:
    """The same memory in fewer regions, where one follows the other."""
    found: list[Region] = []
    for base, at, nbytes in regions:
        if found and found[-1][0] == base and found[-1][1] + found[-1][2] == at:
            found[-1] = (base, found[-1][1], found[-1][2] + nbytes)
        else:
            found.append((base, at, nbytes))
    return found


def _single(column: list[Region]) -> bool:
    return len(column) == 1


def _rows(columns: list[list[Region]]) -> Iterator[list[Region]]:
    """Cut columns of regions, of one size in all, where any of them is cut."""
    rests = [list(reversed(column)) for column in columns]
    while rests[0]:
        nbytes = min([column[-1][2] for column in rests])
        row = []
        for column in rests:
            base, at, size = column.pop()
            row.append((base, at, nbytes))
            if size > nbytes:
                column.append((base, at + nbytes, size - nbytes))
        yield row
