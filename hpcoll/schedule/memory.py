"""Where each chunk of one rank lies: the one rule that proof and lowering share.

A work chunk begins as the input holds it and is read there until it is first
written; from then on it lies in the output, if the output holds it, else in
scratch. In place, input and output are the same memory, so a write may destroy an
input that is still needed: locations are equal exactly where memory is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from hpcoll.errors import ScheduleError
from hpcoll.schedule.collectives import COLLECTIVES, Id
from hpcoll.schedule.operations import Chunk, Place
from hpcoll.schedule.problem import Problem


class Location(NamedTuple):
    """A piece of this rank's memory: ``area`` is ``"src"``, ``"dst"`` or ``"scratch"``."""

    area: str
    key: Hashable


class Memory:
    """The memory of one rank while a schedule runs.

    Parameters
    ----------
    p : Problem
        The rank's problem.
    aliased : bool
        Whether the call is in place.
    """

    def __init__(self, p: Problem, *, aliased: bool = False) -> None:
        kind = COLLECTIVES[p.collective]
        self.problem = p
        self.inputs: set[Id] = set(kind.inputs(p))
        self.outputs: set[Id] = set(kind.outputs(p))
        self._alias = kind.alias(p) if aliased else {}
        self._written: set[Id] = set()
        self._pairs = p.collective == "alltoall"

    def source(self, chunk: Id) -> Location:
        """Where an input chunk lies."""
        if chunk in self._alias:
            return Location("dst", self._alias[chunk])
        return Location("src", chunk)

    def target(self, chunk: Id) -> Location:
        """Where a work chunk lies once it has been written."""
        if chunk in self.outputs:
            return Location("dst", chunk)
        return Location("scratch", chunk)

    def read(self, chunk: Chunk) -> Location:
        """Where the value of a chunk lies now.

        Raises
        ------
        ScheduleError
            If there is no such chunk, or the input doesn't hold it.
        """
        if isinstance(chunk, Place):
            self._check(chunk.chunk)
            if chunk.buffer == "tmp":
                return Location("scratch", chunk)
            if chunk.chunk not in self.inputs:
                raise ScheduleError(f"reads {chunk}, which this rank's input doesn't hold")
            return self.source(chunk.chunk)
        self._check(chunk)
        if chunk in self.inputs and chunk not in self._written:
            return self.source(chunk)
        return self.target(chunk)

    def in_input(self, chunk: Chunk) -> bool:
        """Whether a chunk is still where the input holds it."""
        if isinstance(chunk, Place):
            return chunk.buffer == "src"
        return chunk in self.inputs and chunk not in self._written

    def write(self, chunk: Chunk) -> Location:
        """Where a new value of a chunk goes; call `wrote` when it is there.

        Raises
        ------
        ScheduleError
            If there is no such chunk or it may not be written.
        """
        if isinstance(chunk, Place):
            self._check(chunk.chunk)
            if chunk.buffer == "src":
                raise ScheduleError(f"writes {chunk}, but the input is read-only")
            return Location("scratch", chunk)
        self._check(chunk)
        return self.target(chunk)

    def wrote(self, chunk: Chunk) -> None:
        """Note that a work chunk has been written."""
        if not isinstance(chunk, Place):
            self._written.add(chunk)

    def _check(self, chunk: Hashable) -> None:
        p = self.problem
        if self._pairs:
            if (
                type(chunk) is not tuple
                or len(chunk) != 2
                or not all(isinstance(r, int) and 0 <= r < p.size for r in chunk)
            ):
                raise ScheduleError(
                    f"chunk {chunk!r} is out of range: alltoall's chunks are "
                    f"(source, destination) with both in 0..{p.size - 1}"
                )
        elif not isinstance(chunk, int) or not 0 <= chunk < p.chunks:
            raise ScheduleError(
                f"chunk {chunk!r} is out of range: there are chunks 0..{p.chunks - 1}"
            )
