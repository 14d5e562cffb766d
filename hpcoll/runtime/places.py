"""Where the chunks of one rank lie while its schedule is lowered, as regions of memory.

The rule is that of `hpcoll.schedule.memory`; here it is kept for whole runs of chunks
at a time, so that a message of thousands of chunks costs little more than one of a few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from hpcoll.errors import ScheduleError
from hpcoll.runtime.layout import Layout, PairLayout
from hpcoll.runtime.recipe import DST, SCRATCH, SRC, Region, RowWriter
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.operations import Chunk, Place, Step, written_by
from hpcoll.schedule.problem import Problem


class Places(ABC):
    """The memory of one rank."""

    def __init__(self, out: RowWriter) -> None:
        self._out = out
        self._temporary: dict[Place, Region] = {}

    @abstractmethod
    def read(self, chunks: Sequence[Chunk]) -> list[Region]:
        """Where the values of chunks lie now; neighbours are joined, empty ones left out."""

    @abstractmethod
    def write(self, chunks: Sequence[Chunk]) -> list[Region]:
        """Where new values of chunks go; call `wrote` when they are there."""

    @abstractmethod
    def wrote(self, chunks: Sequence[Chunk]) -> None:
        """Note that chunks have been written."""

    @abstractmethod
    def unmoved(self) -> Iterator[tuple[Region, Region]]:
        """The outputs that are still where the input is: from, to."""

    def size(self, chunk: Chunk) -> int:
        """The size of a chunk in bytes, whichever buffer it is in."""
        return self._nbytes(chunk.chunk if type(chunk) is Place else chunk)  # type: ignore[arg-type]

    @abstractmethod
    def _nbytes(self, chunk: Chunk) -> int:
        """The size of a chunk, whichever buffer it is in."""

    def _tmp(self, place: Place) -> Region:
        found = self._temporary.get(place)
        if found is None:
            found = self._temporary[place] = self._out.reserve(self._nbytes(place.chunk))  # type: ignore[arg-type]
        return found


class Numbered(Places):
    """Chunks that have numbers: every collective but alltoall.

    For each chunk there are two bytes: the base where its value lies now, and that where
    it lies once it has been written.
    """

    def __init__(
        self, p: Problem, layout: Layout, out: RowWriter, aliased: bool, steps: Iterable[Step]
    ) -> None:
        super().__init__(out)
        kind = COLLECTIVES[p.collective]
        self._sizes, self._offsets, self._ordered = layout.nbytes, layout.offsets, layout.ordered
        self._begins = [layout.src_begin, layout.dst_begin]
        self._home = bytearray([SCRATCH]) * p.chunks
        self._now = bytearray([SCRATCH]) * p.chunks
        _mark(self._home, kind.outputs(p), DST)  # type: ignore[arg-type]
        _mark(self._now, kind.inputs(p), SRC)  # type: ignore[arg-type]
        self._source = bytes(self._now)
        if aliased:
            pairs = zip(self._source, self._home, strict=True)
            self._source = bytes([DST if (s, h) == (SRC, DST) else s for s, h in pairs])
            self._now = bytearray(self._source)
        self._scratch = self._reserve(steps) if SCRATCH in self._home else [0] * p.chunks

    def _reserve(self, steps: Iterable[Step]) -> list[int]:
        """Scratch for the chunks that the schedule writes and that aren't outputs."""
        used = bytearray(len(self._home))
        for step in steps:
            for op in step:
                chunks = written_by(op)
                if len(chunks) > 1 and (run := _run(chunks)):
                    used[run[0] : run[1]] = b"\1" * len(chunks)
                else:
                    for c in chunks:
                        if type(c) is not Place:
                            used[self._checked(c)] = 1
        total = 0
        starts = [0] * len(used)
        for c, (is_used, home) in enumerate(zip(used, self._home, strict=True)):
            if is_used and home == SCRATCH:
                starts[c] = total
                total += self._sizes[c]
        base = self._out.reserve(total)[1]
        return [base + at for at in starts]

    def read(self, chunks: Sequence[Chunk]) -> list[Region]:
        return self._regions(chunks, self._now)

    def write(self, chunks: Sequence[Chunk]) -> list[Region]:
        return self._regions(chunks, self._home)

    def single(self, chunk: Chunk, *, home: bool = False) -> Region | None:
        """Where one numbered chunk lies, now or once it has been written; None if it is none."""
        if type(chunk) is not int or not 0 <= chunk < len(self._now):
            return None
        return self._region(chunk, (self._home if home else self._now)[chunk])

    def wrote(self, chunks: Sequence[Chunk]) -> None:
        if len(chunks) > 1 and (run := _run(chunks)):
            self._now[run[0] : run[1]] = self._home[run[0] : run[1]]
            return
        for c in chunks:
            if type(c) is not Place:
                self._now[c] = self._home[c]  # type: ignore[index]

    def unmoved(self) -> Iterator[tuple[Region, Region]]:
        c = self._now.find(SRC)
        while c >= 0:
            if self._home[c] == DST and self._sizes[c]:
                yield self._region(c, SRC), self._region(c, DST)
            c = self._now.find(SRC, c + 1)

    def _nbytes(self, chunk: Chunk) -> int:
        return self._sizes[chunk]  # type: ignore[index]

    def _region(self, chunk: int, base: int) -> Region:
        if base == SCRATCH:
            return SCRATCH, self._scratch[chunk], self._sizes[chunk]
        return base, self._offsets[chunk] - self._begins[base], self._sizes[chunk]

    def _regions(self, chunks: Sequence[Chunk], bases: bytearray) -> list[Region]:
        if len(chunks) == 1:
            c = chunks[0]
            if type(c) is int and 0 <= c < len(bases) and (base := bases[c]) != SCRATCH:
                nbytes = self._sizes[c]
                return [(base, self._offsets[c] - self._begins[base], nbytes)] if nbytes else []
        found: list[Region] = []
        at = 0
        while self._ordered and len(chunks) - at > 2 and (run := _leading_run(chunks[at:])):
            first, end = run
            if first < 0 or end > len(bases):
                break
            at += end - first
            while first < end:
                base = bases[first]
                # Up to where the base is another one.
                upto = end - len(bases[first:end].lstrip(bytes((base,))))
                start, last = self._region(first, base), self._region(upto - 1, base)
                _join(found, (base, start[1], last[1] + last[2] - start[1]))
                first = upto
        for c in chunks[at:]:
            if type(c) is not Place:
                _join(found, self._region(c, bases[self._checked(c)]))  # type: ignore[arg-type]
            elif c.buffer == "tmp":
                self._checked(c.chunk)
                _join(found, self._tmp(c))
            else:
                base = self._source[self._checked(c.chunk)]
                if base == SCRATCH:
                    raise ScheduleError(f"reads {c}, which this rank's input doesn't hold")
                _join(found, self._region(c.chunk, base))  # type: ignore[arg-type]
        return found

    def _checked(self, chunk: object) -> int:
        if not isinstance(chunk, int) or not 0 <= chunk < len(self._home):
            raise ScheduleError(
                f"chunk {chunk!r} is out of range: there are chunks 0..{len(self._home) - 1}"
            )
        return chunk


class Paired(Places):
    """The chunks of an alltoall: pairs of source and destination."""

    def __init__(self, p: Problem, layout: PairLayout, out: RowWriter, aliased: bool) -> None:
        super().__init__(out)
        self._rank, self._layout, self._aliased = p.rank, layout, aliased
        self._written: set[Chunk] = set()
        self._relayed: dict[Chunk, Region] = {}

    def read(self, chunks: Sequence[Chunk]) -> list[Region]:
        found: list[Region] = []
        for c in chunks:
            if type(c) is Place:
                region = self._tmp(c) if c.buffer == "tmp" else self._source(c.chunk)  # type: ignore[arg-type]
            elif c[0] == self._rank and c not in self._written:  # type: ignore[index]
                region = self._source(c)
            else:
                region = self._target(c)
            _join(found, region)
        return found

    def write(self, chunks: Sequence[Chunk]) -> list[Region]:
        self._place([c for c in chunks if type(c) is not Place])
        found: list[Region] = []
        for c in chunks:
            _join(found, self._tmp(c) if type(c) is Place else self._target(c))
        return found

    def wrote(self, chunks: Sequence[Chunk]) -> None:
        self._written.update(chunks)

    def unmoved(self) -> Iterator[tuple[Region, Region]]:
        own = (self._rank, self._rank)
        if own not in self._written and self._nbytes(own):
            yield self._source(own), self._target(own)

    def _nbytes(self, chunk: Chunk) -> int:
        source, destination = chunk  # type: ignore[misc]
        return self._layout.counts[source][destination] * self._layout.itemsize

    def _source(self, chunk: Chunk) -> Region:
        destination: int = chunk[1]  # type: ignore[index, assignment]
        nbytes = self._nbytes(chunk)
        if self._aliased:
            return DST, self._layout.dst[destination], nbytes
        return SRC, self._layout.src[destination], nbytes

    def _target(self, chunk: Chunk) -> Region:
        if chunk[1] == self._rank:  # type: ignore[index]
            return DST, self._layout.dst[chunk[0]], self._nbytes(chunk)  # type: ignore[index]
        return self._relayed[chunk]

    def _place(self, chunks: list[Chunk]) -> None:
        """Put chunks that are on their way side by side, as they arrive."""
        new = [c for c in chunks if c[1] != self._rank and c not in self._relayed]  # type: ignore[index]
        if not new:
            return
        sizes = [self._nbytes(c) for c in new]
        at = self._out.reserve(sum(sizes))[1]
        for c, nbytes in zip(new, sizes, strict=True):
            self._relayed[c] = (SCRATCH, at, nbytes)
            at += nbytes


def _run(chunks: Sequence[Chunk]) -> tuple[int, int] | None:
    """First and end of the run that chunks are; None where their numbers don't run on."""
    first, last = chunks[0], chunks[-1]
    if type(first) is not int or type(last) is not int or last - first != len(chunks) - 1:
        return None
    return (first, last + 1) if chunks == tuple(range(first, last + 1)) else None


def _leading_run(chunks: Sequence[Chunk]) -> tuple[int, int] | None:
    """First and end of a run of several chunks that the chunks begin with."""
    first = chunks[0]
    if type(first) is not int:
        return None
    whole = _run(chunks)
    if whole:
        return whole
    low, high = 1, len(chunks)
    while low < high - 1:
        middle = (low + high) // 2
        if chunks[middle - 1] == first + middle - 1:
            low = middle
        else:
            high = middle
    return _run(chunks[:low]) if low > 1 else None


def _mark(marks: bytearray, chunks: Iterable[int], base: int) -> None:
    if isinstance(chunks, range):
        marks[chunks.start : chunks.stop] = bytes([base]) * len(chunks)
        return
    for c in chunks:
        marks[c] = base


def _join(found: list[Region], region: Region) -> None:
    """Add a region to a list, to the last one where it follows it in memory."""
    base, offset, nbytes = region
    if not nbytes:
        return
    if found:
        before, at, size = found[-1]
        if before == base and at + size == offset:
            found[-1] = (base, at, size + nbytes)
            return
    found.append(region)
