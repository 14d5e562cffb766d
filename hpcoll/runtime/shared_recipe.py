"""A recipe over shared memory: one rank's rows, with the places of others' publications.

Each rank makes a draft of its own rows, tells the others where its publications lie and
what it could do without a copy, and from what all told makes its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpcoll.runtime import publications, segments
from hpcoll.runtime.layout import Layout, PairLayout
from hpcoll.runtime.publications import Draft, Message, Publication, Row, final_base
from hpcoll.runtime.recipe import DST
from hpcoll.runtime.ways import STREAM_OWN, STREAM_SHARED
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.problem import Problem

OP, NSRC, NDST, FIRST, NBYTES, ROW_SKEW, LINE, EXTRA = range(8)
"""Columns of a row; EXTRA is the divisor, or options of a row that copies or folds."""

TELLS = 4
"""The line tells where the value lies; other options of a row are the ways allowed to it."""

COMBINE, DIVIDE, WHOLE, CHECK = publications.COMBINE, publications.DIVIDE, publications.WHOLE, 3
"""Kinds of rows; CHECK waits until the lines and slots of a tick may be used again."""

BASE, OFFSET, PIECE_STRIDE, DEPTH_STRIDE, WAIT_LINE, PEER, OPTIONS, READERS = range(8)
"""Columns of an operand. One that is staged for others has in WAIT_LINE and PEER the offset
and the base of the array where they may read it instead, and in READERS their number."""

RESOLVE, PUSHED, STAGE, PUSH, SLOT = 1, 2, 4, 8, 16
"""Options of an operand: the line tells where it lies; its maker may have stored it in
this rank's output; the slot is needed only if some reader can't be served otherwise;
it is stored in another rank's output; it lies in a slot."""

SEGMENT_BASE = 3
"""Bases are input, output, scratch, and from here on the ranks' segments."""

WAYS_FROM_NBYTES = 2048
"""Smaller values are stored in one way only."""

STREAM_OUTPUT_FROM_NBYTES = 4 << 20
"""Smaller outputs are left in the caches for those who use them next."""

PIECES = 4
MOST_PIECE_NBYTES = 128 << 10
LEAST_PIECE_NBYTES = {True: 16 << 10, False: 64 << 10}
"""Longer chunks are cut into at least so many pieces of these sizes, which follow each
other through the rows. To or from a root (True), one rank reads what another one still
writes, and short pieces let them work at once; else all ranks write, and then all read."""


@dataclass(frozen=True, slots=True)
class SharedRecipe:
    """A rank's table of rows for its engine.

    Attributes
    ----------
    rows, operands : ndarray of int64, shape (n, 8)
        See the column names.
    steps : ndarray of int64, shape (n,)
        The schedule's step that each row belongs to.
    acks : ndarray of int64, shape (m, 2)
        (rank, base): who reads this rank's array without a copy and isn't heard from after.
    scratch_nbytes : int
        Private scratch memory.
    pieces, piece_nbytes, skew : int
        How each chunk is cut, and how many pieces the first rows are ahead.
    block_nbytes : int
        All slots of a piece, on the rank that has most.
    hears_all : bool
        Whether a rank that has run it knows that all others had begun it.
    offers_memory : bool
        Whether others read this rank's private arrays through the kernel.
    input_copied : bool
        Whether the input is copied first, because in place it would be destroyed.
    """

    rows: NDArray[np.int64]
    operands: NDArray[np.int64]
    steps: NDArray[np.int64]
    acks: NDArray[np.int64]
    scratch_nbytes: int
    pieces: int
    piece_nbytes: int
    skew: int
    block_nbytes: int
    hears_all: bool
    offers_memory: bool
    input_copied: bool


class Entry(NamedTuple):
    """What a rank tells a reader about one chunk that it shows to it.

    Attributes
    ----------
    line, slot : int
        Numbers of the publication's line and slot.
    seen : int
        So many of the reader's own entries (on lane 0, in order) it has read by then.
    may_push : int
        Whether it could store the value in the reader's output itself.
    """

    line: int
    slot: int
    seen: int
    may_push: int


class Told:
    """What a rank has told about its draft.

    Parameters
    ----------
    data : dict
        As made by `tell`.
    reader : int
        The rank that reads it here.
    """

    def __init__(self, data: dict[str, Any], reader: int) -> None:
        self.lines, self.slots = data["need"]
        self.sent = {
            lane: [Entry(*flat[i : i + 4]) for i in range(0, len(flat), 4)]
            for peer, lane, flat in data["sent"]
            if peer == reader
        }
        self.fresh = {lane: places for peer, lane, places in data["fresh"] if peer == reader}


def tell(draft: Draft) -> dict[str, Any]:
    """What the other ranks must know of a draft, as plain data."""
    at: dict[int, int] = {}
    seen: list[dict[int, int]] = []
    heard: list[set[int]] = []
    counts: dict[int, int] = {}
    taken: dict[int, set[int]] = {}
    known: set[int] = set()
    for row in draft.rows:
        for source in row.sources:
            if isinstance(source, Message):
                known.add(source.peer)
                if source.lane == 0:
                    have = taken.setdefault(source.peer, set())
                    have.add(source.index)
                    n = counts.get(source.peer, 0)
                    while n in have:
                        n += 1
                    counts[source.peer] = n
        if row.publication is not None:
            at[row.publication.line] = len(seen)
            peers = {m.peer for m in row.publication.readers}
            seen.append({peer: counts.get(peer, 0) for peer in peers})
            pushes = not row.initial and row.nbytes > segments.PAYLOAD_NBYTES and row.sources
            heard.append(peers & known if pushes else set())
    sent = []
    for (peer, lane), entries in sorted(draft.sent.items()):
        flat: list[int] = []
        for publication in entries:
            i = at[publication.line]
            flat += (publication.line, publication.slot, seen[i][peer], int(peer in heard[i]))
        sent.append([peer, lane, flat])
    places = _fresh_places(draft)
    fresh = [
        [peer, lane, [places.get(Message(peer, lane, k), -1) for k in range(count)]]
        for (peer, lane), count in sorted(draft.received.items())
    ]
    return {"need": [draft.lines, draft.slots], "sent": sent, "fresh": fresh}


def _fresh_places(draft: Draft) -> dict[Message, int]:
    """For each message that its sender may store in this rank's output itself, the offset.

    That is so where it is all that ever comes there, and nothing else is done with it on
    arrival.
    """
    uses: dict[Message, int] = {}
    writes: dict[tuple[int, int], int] = {}
    for row in draft.rows:
        for source in row.sources:
            if isinstance(source, Message):
                uses[source] = uses.get(source, 0) + 1
        if row.target is not None and row.kind == COMBINE:
            writes[row.target[:2]] = writes.get(row.target[:2], 0) + 1
    found = {}
    for row in draft.rows:
        target = row.target
        if len(row.sources) != 1 or row.publication is not None or target is None:
            continue
        (message,) = row.sources
        if not isinstance(message, Message) or target[0] != DST or uses[message] != 1:
            continue
        if writes[target[:2]] == 1:
            found[message] = target[1]
    return found


def largest_chunk(layout: Layout | PairLayout) -> int:
    """Bytes of the largest chunk on any rank."""
    if isinstance(layout, PairLayout):
        return max((n for row in layout.counts for n in row), default=0) * layout.itemsize
    return max(layout.nbytes, default=0)


def hears_all(p: Problem, layout: Layout | PairLayout) -> bool:
    """Whether this rank's result depends on every other rank.

    Then a right schedule lets it hear from all of them, directly or not.
    """
    if p.collective == "barrier":
        return True
    kind = COLLECTIVES[p.collective]
    heard: set[int] = {p.rank}
    for chunk in kind.outputs(p):
        if isinstance(layout, PairLayout):
            nbytes = layout.counts[chunk[0]][chunk[1]]  # type: ignore[index]
        else:
            nbytes = layout.nbytes[chunk]  # type: ignore[index]
        if nbytes:
            heard.update(kind.contributors(p, chunk))
        if len(heard) == p.size:
            return True
    return len(heard) == p.size


def assemble(
    draft: Draft,
    told: Sequence[Told],
    p: Problem,
    layout: Layout | PairLayout,
    *,
    offers_memory: bool,
) -> SharedRecipe:
    """Make a rank's table from its draft and what all ranks told about theirs."""
    slots = max(t.slots for t in told)
    largest = largest_chunk(layout)
    inline = largest <= segments.PAYLOAD_NBYTES
    piece, pieces = cut(largest, slots, inline, rooted=COLLECTIVES[p.collective].rooted)
    large = layout.dst_nbytes >= STREAM_OUTPUT_FROM_NBYTES
    table = _Table(draft, told, p.rank, inline, piece, large)
    skew = 1 if pieces > 1 else 0
    whole = [i for i, r in enumerate(draft.rows) if r.kind == WHOLE]
    initial = [i for i, r in enumerate(draft.rows) if r.initial]
    rest = [i for i, r in enumerate(draft.rows) if not r.initial and r.kind != WHOLE]
    ahead = 0
    if skew:
        ahead = max((n + 1 for n, i in enumerate(rest) if draft.rows[i].publication), default=0)
    table.add(whole, 0)
    table.add(rest[:ahead], skew)
    if draft.lines:
        table.check()
    table.add(initial, 0)
    table.add(rest[ahead:], skew)
    return SharedRecipe(
        np.array(table.rows, np.int64).reshape(-1, 8),
        np.array(table.operands or [0] * 8, np.int64).reshape(-1, 8),
        np.array(table.steps or [0], np.int64),
        np.array(sorted(table.acks), np.int64).reshape(-1, 2),
        draft.scratch_nbytes,
        pieces,
        piece,
        skew,
        0 if inline else slots * piece,
        hears_all(p, layout),
        offers_memory,
        draft.input_copied,
    )


def cut(largest: int, slots: int, inline: bool, *, rooted: bool) -> tuple[int, int]:
    """Size and number of the pieces of chunks of up to `largest` bytes."""
    line = segments.LINE_NBYTES
    if inline or not slots:
        return max(largest, 1), 1
    wanted = min(max(largest // PIECES, LEAST_PIECE_NBYTES[rooted]), MOST_PIECE_NBYTES)
    limit = min(wanted, segments.BLOCK_NBYTES // slots) // line * line
    pieces = -(-largest // limit)
    even = -(-largest // pieces)
    return -(-even // line) * line, pieces


class _Table:
    """Rows on their way into int64."""

    def __init__(
        self,
        draft: Draft,
        told: Sequence[Told],
        rank: int,
        inline: bool,
        piece: int,
        large: bool,
    ) -> None:
        self.rows: list[int] = []
        self.operands: list[int] = []
        self.steps: list[int] = []
        self.acks: set[tuple[int, int]] = set()
        self._draft, self._told, self._rank = draft, told, rank
        self._inline = inline
        self._piece = piece
        self._large = large
        self._fresh = _fresh_places(draft)
        self._heard: dict[int, int] = {}  # peer -> line of a message that has come
        self._last_seen = self._seen_at_last()

    def _seen_at_last(self) -> dict[int, int]:
        """For each peer, how many of this rank's entries it has read when last heard from."""
        found: dict[int, int] = {}
        for row in self._draft.rows:
            for source in row.sources:
                if isinstance(source, Message):
                    entry = self._entry(source)
                    found[source.peer] = max(found.get(source.peer, 0), entry.seen)
        return found

    def add(self, indices: Iterable[int], skew: int) -> None:
        """Emit rows of the draft."""
        for i in indices:
            row = self._draft.rows[i]
            first = len(self.operands) // 8
            for source in row.sources:
                self._source(source)
            ndst, line, extra = 0, -1, row.divisor
            if row.kind == COMBINE:
                extra = self._ways(row)
            publication = row.publication
            if row.target is not None and row.nbytes and row.kind != DIVIDE:
                ndst = 1
                self._place(row.target)
            if publication is not None:
                line = _line_at(publication.line)
                extra |= TELLS * (not self._inline)
                if publication.slot >= 0:
                    ndst += self._stage(i, row, publication)
            self.rows += (row.kind, len(row.sources), ndst, first, row.nbytes, skew, line, extra)
            self.steps.append(row.step)

    def _ways(self, row: Row) -> int:
        """In which ways a row may store its value."""
        if row.nbytes < WAYS_FROM_NBYTES:
            return 0
        own = row.target is not None and row.target[0] == DST
        shared = row.publication is not None
        return STREAM_OWN * (own and (shared or self._large)) | STREAM_SHARED * shared

    def check(self) -> None:
        """Emit the wait for lines and slots to be free."""
        self.rows += (CHECK, 0, 0, 0, 0, 0, -1, 0)
        self.steps.append(0)

    def _entry(self, message: Message) -> Entry:
        return self._told[message.peer].sent[message.lane][message.index]

    def _source(self, source: publications.Source) -> None:
        if not isinstance(source, Message):
            self._place(source)
            return
        entry = self._entry(source)
        line = _line_at(entry.line)
        base = SEGMENT_BASE + source.peer
        self._heard.setdefault(source.peer, line)
        if entry.slot < 0 or self._inline:
            at, stride, options = line + segments.PAYLOAD_AT, segments.LINE_STRIDE, 0
        else:
            at, stride, options = entry.slot * self._piece, 0, RESOLVE | SLOT
            if entry.may_push and source in self._fresh:
                options |= PUSHED
        self.operands += (base, at, 0, stride, line, source.peer, options, 0)

    def _place(self, region: tuple[int, int, int]) -> None:
        self.operands += (region[0], region[1], self._piece, 0, -1, -1, 0, 0)

    def _stage(self, i: int, row: Row, publication: Publication) -> int:
        """Where a publication's value goes for its readers; return how many places."""
        count = 0
        base, offset = -1, 0
        if not self._inline:
            for reader in publication.readers:
                place = self._pushes_to(row, reader)
                if place >= 0:
                    line = self._heard[reader.peer]
                    self.operands += (0, place, self._piece, 0, line, reader.peer, PUSH, 0)
                    count += 1
            if not count:
                base, offset = final_base(self._draft.rows, i)
            if base >= 0:
                self._acknowledge(publication, base)
        segment = SEGMENT_BASE + self._rank
        if self._inline:
            at = _line_at(publication.line) + segments.PAYLOAD_AT
            self.operands += (segment, at, 0, segments.LINE_STRIDE, 0, -1, STAGE, -1)
        else:
            at = publication.slot * self._piece
            readers = len(publication.readers)
            self.operands += (segment, at, 0, 0, offset, base, STAGE | SLOT, readers)
        return count + 1

    def _pushes_to(self, row: Row, reader: Message) -> int:
        """Offset in the reader's output at which this rank stores a value itself, or -1."""
        if row.initial or not row.sources or row.nbytes <= segments.PAYLOAD_NBYTES:
            return -1
        if reader.peer not in self._heard:
            return -1
        fresh: int = self._told[reader.peer].fresh[reader.lane][reader.index]
        return fresh

    def _acknowledge(self, publication: Publication, base: int) -> None:
        for reader in publication.readers:
            seen = self._last_seen.get(reader.peer, 0) if reader.lane == 0 else 0
            if seen <= reader.index:
                self.acks.add((reader.peer, base))


def _line_at(line: int) -> int:
    return segments.CONTROL_NBYTES + line * segments.LINE_NBYTES
