"""One rank's schedule as publications: what it shows to others, and what it reads of theirs.

On shared memory nothing is sent. A rank publishes a value once, whoever reads it, and a
reader waits for the publication and takes the value from there, into a fold or to where
it belongs. So a message of the schedule becomes, chunk by chunk, an entry that names a
publication; the rows that make values publish them in the same pass.

What is decided here (which publications there are, their lines and slots) doesn't depend
on where the arrays lie, so that ranks can tell each other once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from hpcoll.runtime.layout import Layout, PairLayout
from hpcoll.runtime.lowering import destroys_input
from hpcoll.runtime.places import Numbered, Paired, Places
from hpcoll.runtime.recipe import DST, SCRATCH, SRC, Region, RowWriter
from hpcoll.schedule.collectives import COLLECTIVES
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

COMBINE, DIVIDE, WHOLE = range(3)
"""Kinds of rows: copy or fold, divide, copy an array as a whole."""


class Message(NamedTuple):
    """A chunk of a message from another rank: the `index`-th of those from it on a lane."""

    peer: int
    lane: int
    index: int  # type: ignore[assignment]


Source: TypeAlias = "Region | Message"


@dataclass(slots=True, eq=False)
class Publication:
    """A value that a rank shows to others.

    Attributes
    ----------
    line, slot : int
        Numbers of its line and of its slot; no slot (-1) for a bare signal.
    readers : list of (int, int, int)
        Who reads it: peer, lane, index of the entry.
    """

    line: int
    slot: int
    readers: list[Message] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Row:
    """One pass over memory: sources are copied or folded to a target, and published.

    Attributes
    ----------
    step : int
        The schedule's step.
    kind : int
        COMBINE, DIVIDE or WHOLE.
    sources : list
        Regions and messages, in the order of the fold.
    target : Region or None
        Where the value goes on this rank.
    nbytes : int
        Size of the value.
    publication : Publication or None
        What shows it to others.
    initial : bool
        Whether it publishes what the input holds.
    divisor : int
        For DIVIDE; 1: fold the value by itself.
    """

    step: int
    kind: int
    sources: list[Source]
    target: Region | None
    nbytes: int
    publication: Publication | None = None
    initial: bool = False
    divisor: int = 0
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Draft:
    """One rank's rows and publications.

    Attributes
    ----------
    rows : list of Row
        In the order in which a piece meets them.
    sent : dict
        For each (peer, lane) the publications that its entries name, in order.
    received : dict
        For each (peer, lane) how many entries this rank takes.
    lines, slots : int
        How many it needs.
    scratch_nbytes : int
        Private scratch memory.
    input_copied : bool
        Whether the input is copied first, because in place it would be destroyed.
    """

    rows: list[Row]
    sent: dict[tuple[int, int], list[Publication]]
    received: dict[tuple[int, int], int]
    lines: int
    slots: int
    scratch_nbytes: int
    input_copied: bool


def draft(
    steps: Sequence[Step],
    p: Problem,
    layout: Layout | PairLayout,
    *,
    aliased: bool,
    divisor: int,
    lone: bool,
) -> Draft:
    """Turn one rank's steps into rows that publish and read.

    Parameters
    ----------
    steps : sequence of Step
        The rank's schedule.
    p : Problem
        This rank's problem.
    layout : Layout
        Where its chunks lie.
    aliased, divisor, lone
        As for `lower`.
    """
    copied = aliased and destroys_input(steps, p)
    drafting = _Drafting(steps, p, layout, aliased and not copied)
    if copied:
        drafting.copy_input()
    for number, step in enumerate(steps):
        drafting.number = number
        drafting.step(step)
    drafting.finish(p, divisor, lone)
    return drafting.result(copied)


class _Drafting:
    """A schedule on its way into rows."""

    def __init__(
        self, steps: Sequence[Step], p: Problem, layout: Layout | PairLayout, aliased: bool
    ) -> None:
        self.layout = layout
        self.out = RowWriter()
        self.places: Places
        if isinstance(layout, PairLayout):
            self.places = Paired(p, layout, self.out, aliased)
        else:
            self.places = Numbered(p, layout, self.out, aliased, steps)
        self.number = 0
        self.rows: list[Row] = []
        self.sent: dict[tuple[int, int], list[Publication]] = {}
        self.received: dict[tuple[int, int], int] = {}
        self.lines = self.slots = 0
        self._copy: Region | None = None
        self._written: set[Chunk] = set()
        self._maker: dict[Chunk, Row] = {}
        self._published: dict[Chunk, Publication] = {}
        self._remote: dict[Chunk, Message] = {}

    def copy_input(self) -> None:
        """Work on a copy of the input."""
        nbytes = self.layout.src_nbytes
        self._copy = self.out.reserve(nbytes)
        self.rows.append(Row(0, WHOLE, [(SRC, 0, nbytes)], self._copy, nbytes))

    def step(self, step: Step) -> None:
        """The rows of one step: what it sends is published before anything is written."""
        for op in step:
            if type(op) is Send:
                self._send(op)
        made: list[tuple[Chunk, Row | Message]] = []
        for op in step:
            if type(op) is Send:
                continue
            into = written_by(op)
            if type(op) is Recv and not into:
                message = self._next(op.peer, op.lane)
                self.rows.append(Row(self.number, COMBINE, [message], None, 0))
                continue
            wanted = [c for c in into if self.places.size(c)]
            columns: list[list[Source]] = []
            if type(op) is Recv:
                columns.append([self._next(op.peer, op.lane) for _ in wanted])
            elif type(op) is Fold:
                for operand in op.operands:
                    if type(operand) is Incoming:
                        columns.append([self._next(operand.peer, operand.lane) for _ in wanted])
                    else:
                        columns.append(self._values(operand))
            else:
                columns.extend(self._values(group) for group in read_by(op))
            for i, chunk in enumerate(wanted):
                (target,) = self.places.write((chunk,))
                sources = [column[i] for column in columns]
                if type(op) is Recv and target[0] == SCRATCH:
                    made.append((chunk, sources[0]))  # type: ignore[arg-type]
                    continue
                row = Row(self.number, COMBINE, sources, target, target[2])
                row.needed = target[0] != SCRATCH
                self.rows.append(row)
                made.append((chunk, row))
        for chunk, value in made:
            self._written.add(chunk)
            self._published.pop(chunk, None)
            self._maker.pop(chunk, None)
            self._remote.pop(chunk, None)
            if isinstance(value, Row):
                self._maker[chunk] = value
            else:
                self._remote[chunk] = value
        for op in step:
            if type(op) is not Send:
                self.places.wrote(written_by(op))

    def finish(self, p: Problem, divisor: int, lone: bool) -> None:
        """Put outputs that no step wrote in their place; end an average."""
        for source, target in self.places.unmoved():
            source = self._from_copy(source)
            self.rows.append(Row(self.number, COMBINE, [source], target, target[2]))
        if divisor > 1 or lone:
            for chunk in COLLECTIVES[p.collective].outputs(p):
                for region in self.places.write((chunk,)):
                    size = divisor if divisor > 1 else 1
                    row = Row(self.number, DIVIDE, [region], region, region[2], divisor=size)
                    self.rows.append(row)

    def result(self, copied: bool) -> Draft:
        """The draft, without rows that do nothing."""
        rows = []
        for row in self.rows:
            if not row.needed:
                row.target = None
            idle = row.target is None and row.publication is None and row.nbytes
            if not idle and not _moves_nothing(row):
                rows.append(row)
        initial = [r for r in rows if r.initial]
        whole = [r for r in rows if r.kind == WHOLE]
        rest = [r for r in rows if not r.initial and r.kind != WHOLE]
        return Draft(
            [*whole, *initial, *rest], self.sent, self.received, self.lines, self.slots,
            self.out.scratch, copied,
        )  # fmt: skip

    def _send(self, op: Send) -> None:
        if not op.chunks:
            signal = self._publish(-1)
            self.rows.append(Row(self.number, COMBINE, [], None, 0, signal))
            self._show(signal, op)
            return
        for chunk in op.chunks:
            if self.places.size(chunk):
                self._show(self._publication(chunk), op)

    def _publication(self, chunk: Chunk) -> Publication:
        """What shows the value that a chunk has now; one for all that it is sent to."""
        key = self._key(chunk)
        found = self._published.get(key)
        if found is not None:
            return found
        found = self._published[key] = self._publish(self.slots)
        self.slots += 1
        maker = self._maker.get(key)
        if maker is not None and maker.publication is None:
            maker.publication = found
            return found
        source = self._value(chunk)
        nbytes = self.places.size(chunk)
        row = Row(self.number, COMBINE, [source], None, nbytes, found)
        row.initial = maker is None and not isinstance(source, Message)
        self.rows.append(row)
        return found

    def _publish(self, slot: int) -> Publication:
        publication = Publication(self.lines, slot)
        self.lines += 1
        return publication

    def _show(self, publication: Publication, op: Send) -> None:
        for peer in op.peers:
            entries = self.sent.setdefault((peer, op.lane), [])
            publication.readers.append(Message(peer, op.lane, len(entries)))
            entries.append(publication)

    def _next(self, peer: int, lane: int) -> Message:
        index = self.received.get((peer, lane), 0)
        self.received[peer, lane] = index + 1
        return Message(peer, lane, index)

    def _key(self, chunk: Chunk) -> Chunk:
        """One name for a chunk's value, whether it is called by its place or not."""
        if type(chunk) is Place or chunk in self._written:
            return chunk
        return Place("src", chunk)

    def _values(self, chunks: Sequence[Chunk]) -> list[Source]:
        return [self._value(c) for c in chunks if self.places.size(c)]

    def _value(self, chunk: Chunk) -> Source:
        """Where a chunk's value is to be read."""
        key = self._key(chunk)
        remote = self._remote.get(key)
        if remote is not None:
            return remote
        maker = self._maker.get(key)
        if maker is not None:
            maker.needed = True
        (region,) = self.places.read((chunk,))
        return self._from_copy(region)

    def _from_copy(self, region: Region) -> Region:
        if self._copy is None or region[0] != SRC:
            return region
        return SCRATCH, self._copy[1] + region[1], region[2]


def _moves_nothing(row: Row) -> bool:
    if row.kind != COMBINE or row.publication is not None or len(row.sources) != 1:
        return False
    (source,) = row.sources  # a message equals a region of the same three numbers
    return not isinstance(source, Message) and source == row.target


def overlaps(a: Region | None, b: Region | None) -> bool:
    """Whether two regions share memory."""
    if a is None or b is None or a[0] != b[0]:
        return False
    return a[1] < b[1] + b[2] and b[1] < a[1] + a[2]


def final_base(rows: Sequence[Row], at: int) -> tuple[int, int]:
    """Where others may read a row's value without a copy: (base, offset), or (-1, 0).

    It must lie in one of the user's arrays, and nothing may be written there later.
    """
    row = rows[at]
    region = row.target
    if region is None and len(row.sources) == 1 and not isinstance(row.sources[0], Message):
        region = row.sources[0]
    if region is None or region[0] not in (SRC, DST):
        return -1, 0
    if any(overlaps(region, later.target) for later in rows[at + 1 :]):
        return -1, 0
    return region[0], region[1]
