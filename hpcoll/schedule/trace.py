"""What a run of all ranks did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hpcoll.schedule.operations import Chunk


class Message(NamedTuple):
    """One message of a run, with the step numbers at both ends.

    `order` numbers the messages of the source in the order in which it sends them.
    """

    source: int
    sent_in: int
    target: int
    received_in: int
    chunks: tuple[Chunk, ...]
    order: int = 0


@dataclass
class Trace:
    """What a run did.

    Attributes
    ----------
    messages : list of Message
        In the order in which they matched.
    steps : list of int
        For each rank, how many steps it took.
    folds : list of int
        For each rank, chunks folded: operands less one, for each chunk of a fold.
    passes : list of int
        For each rank, chunks that folds have written.
    scratch : list of int
        For each rank, the most scratch chunks in use.
    held : list of dict
        For each rank, the value of each chunk that has one.
    heard : list of int
        For each rank, a bit mask of the ranks that it heard from, directly or not.
    in_place : bool
        Whether no rank reads an input that it has overwritten in an in-place call.
    """

    messages: list[Message] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    held: list[dict[Chunk, int]] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    in_place: bool = True
