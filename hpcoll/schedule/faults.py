"""Counterexamples: what is wrong with a schedule, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hpcoll.errors import ScheduleError
from hpcoll.schedule.memory import Memory
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


class Fault(ScheduleError):
    """What is wrong with a schedule.

    Attributes
    ----------
    kind : str
        Short name of the kind of fault.
    rank, step : int or None
        Where it is.
    """

    def __init__(self, kind: str, text: str, rank: int | None = None, step: int | None = None):
        where = "" if rank is None else f"rank {rank}" + ("" if step is None else f" step {step}")
        super().__init__(f"{kind}: {where}{': ' if where else ''}{text}")
        self.kind = kind
        self.text = text
        self.rank = rank
        self.step = step


def chunk_id(chunk: Chunk) -> object:
    """The number of a chunk, whichever buffer it is in: chunks of one number are equally large."""
    return chunk.chunk if isinstance(chunk, Place) else chunk


def same_sizes(a: tuple[Chunk, ...], b: tuple[Chunk, ...]) -> bool:
    """Whether two groups are of one size whatever the sizes of the chunks are."""
    return a == b or (len(a) == len(b) and all(map(_same_id, a, b)))


def _same_id(a: Chunk, b: Chunk) -> bool:
    return chunk_id(a) == chunk_id(b)


def chunk_list(chunks: Iterable[Chunk]) -> str:
    """Chunks in words: ``chunks 0, 1, tmp(2)``."""
    names = [str(c) for c in chunks]
    if not names:
        return "no chunk"
    return f"chunk{'s' if len(names) > 1 else ''} {', '.join(names)}"


def unreadable(memory: Memory, chunk: Chunk, verb: str) -> tuple[str, str]:
    """Kind and text of the fault of a chunk that has no value."""
    try:
        memory.read(chunk)
    except ScheduleError as error:
        outside = "out of range" in str(error)
        return ("chunk out of range" if outside else "nothing there"), f"{verb}: {error}"
    return (
        "nothing there",
        f"{verb} chunk {chunk}, but it holds nothing yet: this rank's input has no such chunk, "
        f"and no earlier step receives, copies or folds into it",
    )


def check_step(
    step: Step,
    memory: Memory,
    held_input: Callable[[Chunk], object],
    under: Mapping[object, object],
) -> bool:
    """Refuse overlaps in a step; return whether the step is right in place as well.

    Only sends may read what another operation of the step writes: they take the
    chunks as they were before it.

    Parameters
    ----------
    step : Step
        The operations.
    memory : Memory
        The rank's memory, to refuse targets that can't be written.
    held_input : callable
        The input chunk that a chunk still stands for, or None.
    under : mapping
        For each output chunk, the input chunk that it overwrites in place.

    Raises
    ------
    Fault
        If two operations touch one chunk, or one can't be written.
    """
    writers: dict[Chunk, tuple[int, int]] = {}
    local = False
    for i, op in enumerate(step):
        if isinstance(op, Send):
            continue
        local = local or not isinstance(op, Recv)
        for j, chunk in enumerate(written_by(op)):
            try:
                memory.write(chunk)
                taken = writers.setdefault(chunk, (i, j)) != (i, j)
            except ScheduleError as error:
                readonly = "read-only" in str(error)
                kind = "write to the input" if readonly else "chunk out of range"
                raise Fault(kind, str(error)) from None
            if taken:
                raise Fault("race", f"chunk {chunk} is written twice in one step")
    if not local:
        return True
    overwritten = {under[c]: at for c, at in writers.items() if c in under}
    in_place = True
    for i, op in enumerate(step):
        if isinstance(op, Fold) and not op.operands:
            raise Fault("nothing there", f"folds nothing into {chunk_list(op.into)}")
        for group in read_by(op):
            for j, chunk in enumerate(group):
                if writers.get(chunk, (i, j)) != (i, j):
                    raise Fault(
                        "race", f"one operation of the step reads chunk {chunk}, another writes it"
                    )
                if overwritten and overwritten.get(held_input(chunk), (i, j)) != (i, j):
                    in_place = False
    return in_place


def is_simple(step: Step, memory: Memory) -> bool:
    """Whether a step can't have overlaps: all but one operation send, and that touches one chunk.

    This is what most steps are, and quicker to see than to check for overlaps.
    """
    single: Operation | None = None
    for op in step:
        if not isinstance(op, Send):
            if single is not None:
                return False
            single = op
    if single is None:
        return True
    into = written_by(single)
    if len(into) != 1 or type(into[0]) is not int or not 0 <= into[0] < memory.problem.chunks:
        return False
    if isinstance(single, Fold):
        alike = [isinstance(o, Incoming) or o == into for o in single.operands]
        return bool(alike) and all(alike)
    return isinstance(single, Recv)
