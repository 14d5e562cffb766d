"""Where each chunk lies in a rank's arrays, in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    nbytes : dict
        Size of every chunk of the collective.
    src, dst : dict
        Offset in the input and in the output array of the chunks that they hold.
    src_nbytes, dst_nbytes : int
        Sizes of the two arrays.
    """

    nbytes: dict[Id, int]
    src: dict[Id, int]
    dst: dict[Id, int]
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


def layout_of(p: Problem, counts: Counts, width: int, itemsize: int) -> Layout:
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
        return Layout({}, {}, {}, 0, 0)
    if kind.name == "alltoall":
        return _pairs(p, counts, itemsize)  # type: ignore[arg-type]
    sizes: dict[Id, int] = {}
    offsets: dict[Id, int] = {}
    at = 0
    if kind.owned:
        for rank in range(p.size):
            block = p.owned(rank)
            share: int = counts[rank]  # type: ignore[assignment]
            for chunk, n in zip(block, cut(share, len(block), width, itemsize), strict=True):
                sizes[chunk], offsets[chunk] = n * itemsize, at
                at += n * itemsize
    else:
        whole: int = counts[0]  # type: ignore[assignment]
        for chunk, n in enumerate(cut(whole, p.chunks, width, itemsize)):
            sizes[chunk], offsets[chunk] = n * itemsize, at
            at += n * itemsize
    src = _packed(list(kind.inputs(p)), sizes, offsets)
    dst = _packed(list(kind.outputs(p)), sizes, offsets)
    return Layout(sizes, src, dst, sum(sizes[c] for c in src), sum(sizes[c] for c in dst))


def _packed(chunks: list[Id], sizes: dict[Id, int], offsets: dict[Id, int]) -> dict[Id, int]:
    """The offsets of some chunks in an array that holds just these."""
    packed: dict[Id, int] = {}
    at = 0
    for chunk in sorted(chunks, key=lambda c: offsets[c]):
        packed[chunk] = at
        at += sizes[chunk]
    return packed


def _pairs(p: Problem, counts: Sequence[Sequence[int]], itemsize: int) -> Layout:
    sizes: dict[Id, int] = {
        (s, d): counts[s][d] * itemsize for s in range(p.size) for d in range(p.size)
    }
    src: dict[Id, int] = {}
    dst: dict[Id, int] = {}
    sent = received = 0
    for peer in range(p.size):
        src[p.rank, peer] = sent
        dst[peer, p.rank] = received
        sent += sizes[p.rank, peer]
        received += sizes[peer, p.rank]
    return Layout(sizes, src, dst, sent, received)
