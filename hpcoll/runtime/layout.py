"""Where each chunk lies in a rank's arrays, in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import le
from typing import TypeAlias

from hpcoll.schedule.collectives import COLLECTIVES, Id
from hpcoll.schedule.problem import Problem

CACHE_LINE_NBYTES = 64

Counts: TypeAlias = "tuple[int, ...] | tuple[tuple[int, ...], ...]"


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and offsets of one rank's chunks, in bytes.

    Attributes
    ----------
    nbytes : sequence of int
        Size of every chunk of the collective.
    offsets : sequence of int
        Where each chunk begins in the whole message.
    ordered : bool
        Whether neighbours in number are neighbours in memory.
    src_begin, dst_begin : int
        Where the parts that the input and the output array hold begin in the whole.
    src_nbytes, dst_nbytes : int
        Sizes of the two arrays.
    total : int
        Size of the whole message.
    """

    nbytes: Sequence[int]
    offsets: Sequence[int]
    ordered: bool
    src_begin: int
    dst_begin: int
    src_nbytes: int
    dst_nbytes: int
    total: int


@dataclass(frozen=True, slots=True)
class PairLayout:
    """Sizes and offsets of one rank's chunks in an alltoall, in bytes.

    Attributes
    ----------
    counts : tuple of tuple of int
        Elements that each source has for each destination.
    itemsize : int
        Bytes of an element.
    src, dst : sequence of int
        Offset in the input for each destination, in the output for each source.
    src_nbytes, dst_nbytes : int
        Sizes of the two arrays.
    """

    counts: tuple[tuple[int, ...], ...]
    itemsize: int
    src: list[int]
    dst: list[int]
    src_nbytes: int
    dst_nbytes: int


def cut(count: int, parts: int, width: int, itemsize: int) -> list[int]:
    """Cut `count` elements into parts as equal as possible.

    Cuts fall on multiples of `width`, and on cache lines once every part has several.
    """
    if parts <= 0:
        return []
    unit = width
    line = max(1, CACHE_LINE_NBYTES // itemsize)
    if line % width == 0 and count >= 8 * line * parts:
        unit = line
    whole, rest = divmod(count, unit)
    each, more = divmod(whole, parts)
    sizes = [(each + (i < more)) * unit for i in range(parts)]
    sizes[-1] += rest
    return sizes


def message_nbytes(collective: str, counts: Counts, itemsize: int) -> int:
    """Message size as nccl-tests counts it; for alltoall the largest row."""
    if collective == "alltoall":
        return max((sum(row) for row in counts), default=0) * itemsize  # type: ignore[arg-type]
    return sum(counts) * itemsize  # type: ignore[arg-type]


def layout_of(p: Problem, counts: Counts, width: int, itemsize: int) -> Layout | PairLayout:
    """Lay out a problem.

    Parameters
    ----------
    p : Problem
        This rank's problem.
    counts : tuple
        Elements: ``(n,)`` for allreduce, broadcast, reduce and the scans; one count a
        rank where chunks have owners; for alltoall a row of destinations for each
        source.
    width, itemsize : int
        Elements that belong together; bytes of an element.
    """
    kind = COLLECTIVES[p.collective]
    if kind.name == "barrier":
        return Layout((), (), True, 0, 0, 0, 0, 0)
    if kind.name == "alltoall":
        return _pairs(p, counts, itemsize)  # type: ignore[arg-type]
    sizes: list[int]
    if not kind.owned:
        whole: int = counts[0]  # type: ignore[assignment]
        sizes = [n * itemsize for n in cut(whole, p.chunks, width, itemsize)]
        offsets = list(accumulate(sizes, initial=0))
        total = offsets.pop()
        ordered = True
    else:
        sizes, offsets, total = _owned(p, counts, width, itemsize)  # type: ignore[arg-type]
        ordered = all(map(le, offsets, offsets[1:]))
    src_begin, src_nbytes = _held(kind.inputs(p), sizes, offsets, total)
    dst_begin, dst_nbytes = _held(kind.outputs(p), sizes, offsets, total)
    return Layout(sizes, offsets, ordered, src_begin, dst_begin, src_nbytes, dst_nbytes, total)


def _held(
    chunks: Iterable[Id], sizes: list[int], offsets: list[int], total: int
) -> tuple[int, int]:
    """Where the part of the message begins that an array holds, and its size."""
    ids: list[int] = list(chunks)  # type: ignore[arg-type]
    if len(ids) == len(sizes) or not ids:
        return 0, total if ids else 0
    return min([offsets[c] for c in ids]), sum([sizes[c] for c in ids])


def _owned(
    p: Problem, counts: Sequence[int], width: int, itemsize: int
) -> tuple[list[int], list[int], int]:
    """Sizes and offsets where chunks have owners, whose parts lie in the order of the ranks."""
    sizes, offsets = [0] * p.chunks, [0] * p.chunks
    at = 0
    for block, share in zip(p.blocks, counts, strict=True):
        if len(block) == 1:
            offsets[block[0]] = at
            sizes[block[0]] = share * itemsize
            at += share * itemsize
            continue
        for chunk, n in zip(block, cut(share, len(block), width, itemsize), strict=True):
            sizes[chunk], offsets[chunk] = n * itemsize, at
            at += n * itemsize
    return sizes, offsets, at


def _pairs(p: Problem, counts: tuple[tuple[int, ...], ...], itemsize: int) -> PairLayout:
    src = list(accumulate((n * itemsize for n in counts[p.rank]), initial=0))
    dst = list(accumulate((row[p.rank] * itemsize for row in counts), initial=0))
    return PairLayout(counts, itemsize, src[:-1], dst[:-1], src[-1], dst[-1])
