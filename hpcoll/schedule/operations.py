"""The vocabulary of an algorithm: what one rank may do in a step.

Operations are plain data. Chunks are written as they are numbered: an int (or, for
alltoall, a pair ``(source, destination)``) is a chunk of the work buffer; `src` and
`tmp` name the read-only input and temporary space of a chunk's size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from hpcoll.errors import ScheduleError

LANES = 16
"""Independent streams of messages within a call."""


class Place(NamedTuple):
    """A chunk outside the work buffer: ``buffer`` is ``"src"`` or ``"tmp"``."""

    buffer: str
    chunk: Hashable
    slot: Hashable = 0

    def __str__(self) -> str:
        slot = f", {self.slot}" if self.slot else ""
        return f"{self.buffer}({self.chunk}{slot})"


Chunk: TypeAlias = "int | tuple[int, int] | Place"


class Incoming(NamedTuple):
    """The next message from `peer`, as an operand of a fold."""

    peer: int
    lane: int = 0


class Send(NamedTuple):
    """Send the chunks, as they are when the step begins, to each of the peers."""

    peers: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    lane: int = 0


class Recv(NamedTuple):
    """Receive the next message from `peer` into the chunks."""

    peer: int
    chunks: tuple[Chunk, ...]
    lane: int = 0


class Copy(NamedTuple):
    """Copy chunks inside this rank."""

    to: tuple[Chunk, ...]
    source: tuple[Chunk, ...]


class Fold(NamedTuple):
    """Combine the operands left to right, rounding once, into the chunks."""

    into: tuple[Chunk, ...]
    operands: tuple[tuple[Chunk, ...] | Incoming, ...]


Operation: TypeAlias = "Send | Recv | Copy | Fold"
Step: TypeAlias = "tuple[Operation, ...]"

_OPERATIONS = frozenset((Send, Recv, Copy, Fold))
_T = TypeVar("_T")


class _New(Protocol):
    def __call__(self, kind: type[_T], fields: tuple[Any, ...], /) -> _T: ...


_new: _New = tuple.__new__  # type: ignore[assignment]
"""Makes a named tuple in half the time of its own constructor."""


def src(chunk: int | tuple[int, int]) -> Place:
    """A chunk of this rank's input, read-only."""
    return Place("src", chunk)


def tmp(chunk: int | tuple[int, int], slot: Hashable = 0) -> Place:
    """Temporary space as large as `chunk`; `slot` tells several of them apart."""
    return Place("tmp", chunk, slot)


def incoming(peer: int, *, lane: int = 0) -> Incoming:
    """The next message from `peer`, as an operand of `fold`."""
    return _new(Incoming, (peer, lane and checked_lane(lane)))


def send(peers: int | Iterable[int], *chunks: Chunk, lane: int = 0) -> Send:
    """Send chunks to one peer or to several; without chunks, a bare signal."""
    targets = (peers,) if isinstance(peers, int) else tuple(peers)
    return _new(Send, (targets, chunks, lane and checked_lane(lane)))


def recv(peer: int, *chunks: Chunk, lane: int = 0) -> Recv:
    """Receive the next message from `peer` into chunks."""
    return _new(Recv, (peer, chunks, lane and checked_lane(lane)))


def recv_reduce(peer: int, *chunks: Chunk, first: bool = False, lane: int = 0) -> Fold:
    """Fold the next message from `peer` into chunks.

    With ``first=True`` the message is the left operand: what a lower rank sent.
    """
    message = _new(Incoming, (peer, lane and checked_lane(lane)))
    return _new(Fold, (chunks, (message, chunks) if first else (chunks, message)))


def copy(to: Chunk, source: Chunk) -> Copy:
    """Copy one chunk to another of the same size."""
    return Copy((to,), (source,))


def fold(into: Chunk | list[Chunk], operands: Iterable[Chunk | list[Chunk] | Incoming]) -> Fold:
    """Combine operands left to right into a chunk, or into each of a list of chunks."""
    return Fold(
        tuple(into) if isinstance(into, list) else (into,),
        tuple(
            o if isinstance(o, Incoming) else tuple(o) if isinstance(o, list) else (o,)
            for o in operands
        ),
    )


def checked_lane(lane: int) -> int:
    """The lane, if there is such a one.

    Raises
    ------
    ScheduleError
        If there is none.
    """
    if not 0 <= lane < LANES:
        raise ScheduleError(f"no lane {lane}: lanes are 0..{LANES - 1}")
    return lane


def as_step(yielded: object) -> Step:
    """Flatten what an algorithm yielded into the operations of one step.

    Raises
    ------
    ScheduleError
        If anything in it is not an operation.
    """
    kind = type(yielded)
    if kind is tuple:
        for part in yielded:  # type: ignore[attr-defined]
            if type(part) not in _OPERATIONS:
                break
        else:
            return yielded  # type: ignore[return-value]
    if kind is tuple or kind is list:
        return tuple([operation for part in yielded for operation in as_step(part)])  # type: ignore[attr-defined]
    if kind in _OPERATIONS:
        return (yielded,)  # type: ignore[return-value]
    raise ScheduleError(
        f"a step holds {yielded!r}: yield send, recv, copy, fold or a tuple of them"
    )


def written_by(operation: Operation) -> tuple[Chunk, ...]:
    """The chunks that an operation writes."""
    kind = type(operation)
    if kind is Fold or kind is Copy:
        return operation[0]  # type: ignore[return-value]
    return operation[1] if kind is Recv else ()  # type: ignore[return-value]


def read_by(operation: Operation) -> list[tuple[Chunk, ...]]:
    """The groups of chunks that a copy or a fold reads; a send takes its own earlier."""
    if type(operation) is Fold:
        return [o for o in operation.operands if type(o) is not Incoming]
    return [operation.source] if type(operation) is Copy else []


def messages_in(operation: Operation) -> list[Incoming]:
    """The messages that an operation waits for, in order."""
    if isinstance(operation, Recv):
        return [Incoming(operation.peer, operation.lane)]
    if isinstance(operation, Fold):
        return [o for o in operation.operands if isinstance(o, Incoming)]
    return []
