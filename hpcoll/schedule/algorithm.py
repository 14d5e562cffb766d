"""An algorithm: a generator in the local view of one rank, and what is said beside it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpcoll.errors import HpcollError, RegistryError, ScheduleError
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.operations import (
    Chunk,
    Copy,
    Fold,
    Incoming,
    Place,
    Recv,
    Send,
    Step,
    as_step,
)
from hpcoll.schedule.problem import Problem, blocks_of
from hpcoll.schedule.topology import Topology

STEP_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A collective algorithm.

    Attributes
    ----------
    collective, name : str
        Together the name in the registry, ``allreduce/ring``.
    function : callable or None
        The generator function; None for the library's native collective, which
        has no schedule.
    chunks : callable
        Number of chunks for a problem.
    when : callable
        Why the algorithm can't serve a problem, or None where it can.
    source : str
        The paper or other origin.
    tunables : tuple of (str, int)
        Keyword parameters and their values.
    """

    collective: str
    name: str
    function: Callable[..., Iterator[Any]] | None
    chunks: Callable[[Problem], int]
    when: Callable[..., str | None]
    source: str = ""
    tunables: tuple[tuple[str, int], ...] = ()
    origin: str = ""
    doc: str = ""

    @property
    def full_name(self) -> str:
        """The name in the registry: ``allgather/bruck``."""
        return f"{self.collective}/{self.name}"

    @property
    def spec(self) -> str:
        """The name with all tunables: ``allgather/bruck:radix=2``."""
        values = ",".join(f"{k}={v}" for k, v in self.tunables)
        return f"{self.full_name}:{values}" if values else self.full_name

    @property
    def native(self) -> bool:
        """Whether this is the communication library's own collective."""
        return self.function is None

    @property
    def digest(self) -> str:
        """Hash of the source file: ranks that run other code are found out."""
        if self.function is None:
            return "native"
        try:
            text = inspect.getsource(inspect.getmodule(self.function) or self.function)
        except (OSError, TypeError):
            text = repr(self.function.__code__.co_code)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def tuned(self, **values: int) -> Algorithm:
        """The same algorithm with other tunables.

        Raises
        ------
        RegistryError
            If it has no such tunable, or a value is not a positive integer.
        """
        known = dict(self.tunables)
        for key, value in values.items():
            if key not in known:
                has = ", ".join(known) or "none"
                raise RegistryError(f"{self.full_name} has no tunable {key!r} (it has: {has})")
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise RegistryError(
                    f"{self.full_name}: {key} must be a positive integer, not {value!r}"
                )
        return replace(self, tunables=tuple({**known, **values}.items()))

    def problem(
        self,
        rank: int,
        size: int,
        *,
        root: int = 0,
        commutes: bool = True,
        topology: Topology | None = None,
        owners: tuple[int, ...] | None = None,
    ) -> Problem:
        """The problem that this algorithm solves on `size` ranks, with its chunks."""
        kind = COLLECTIVES[self.collective]
        p = Problem(
            self.collective,
            rank,
            size,
            root,
            commutes=commutes,
            topology=topology or Topology.single_node(size),
        )
        count = len(owners) if owners is not None else self._ask("chunks", self.chunks, p)
        if not isinstance(count, int) or count < 0:
            raise ScheduleError(f"{self.full_name}: chunks gave {count!r} for {size} ranks")
        if kind.owned and owners is None:
            if count % size:
                raise ScheduleError(
                    f"{self.full_name}: {count} chunks can't be shared by {size} ranks"
                )
            owners = tuple(c // (count // size) for c in range(count)) if count else ()
        blocks = blocks_of(owners, size) if kind.owned and owners is not None else ()
        return replace(p, chunks=count, blocks=blocks)

    def refuses(self, p: Problem) -> str | None:
        """Why the algorithm can't serve a problem; None where it can."""
        reason = self._ask("when", self.when, p, **dict(self.tunables))
        if reason is not None and not isinstance(reason, str):
            raise ScheduleError(f"{self.full_name}: when gave {reason!r}: return a text or None")
        return reason

    def _ask(self, what: str, function: Callable[..., Any], p: Problem, **values: int) -> Any:
        try:
            return function(p, **values)
        except Exception as error:
            raise ScheduleError(
                f"{self.full_name}: {what} failed for {p.size} ranks: "
                f"{type(error).__name__}: {error}"
            ) from error

    def steps(self, p: Problem) -> list[Step]:
        """The schedule of one rank.

        Raises
        ------
        ScheduleError
            If the generator fails, yields something else than operations, or does
            not end.
        """
        if self.function is None:
            raise ScheduleError(f"{self.full_name} has no schedule: it is the library's own")
        steps: list[Step] = []
        try:
            generator = self.function(p, **dict(self.tunables))
            if not isinstance(generator, Iterator):
                raise ScheduleError(f"gave {generator!r}: an algorithm must yield its steps")
            for yielded in generator:
                steps.append(as_step(yielded))
                if len(steps) > STEP_LIMIT:
                    raise ScheduleError(f"more than {STEP_LIMIT} steps: does it ever end?")
        except ScheduleError as error:
            raise ScheduleError(
                f"rank {p.rank}/{p.size} {self.full_name} step {len(steps)}: {error}"
            ) from None
        except HpcollError:
            raise
        except Exception as error:
            raise ScheduleError(
                f"rank {p.rank}/{p.size} {self.full_name} step {len(steps)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return steps


def part(steps: Iterable[Any], sub: Problem, *, lane: int = 0) -> Iterator[Step]:
    """Run a sub-problem's steps as part of a larger algorithm.

    Peers and chunks are translated from the numbers of `sub` (made by
    `Problem.sub`) to those of the problem it is part of, and its messages travel
    in their own lane.
    """

    def chunk(c: Chunk) -> Chunk:
        if isinstance(c, Place):
            slot = (lane, c.slot) if c.buffer == "tmp" else 0
            return Place(c.buffer, chunk(c.chunk), slot)  # type: ignore[arg-type]
        if isinstance(c, tuple):
            return peer(c[0]), peer(c[1])
        if not 0 <= c < len(sub.chunk_ids):
            raise ScheduleError(f"no chunk {c} among the {len(sub.chunk_ids)} of this part")
        return sub.chunk_ids[c]

    def chunks(group: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
        return tuple(chunk(c) for c in group)

    def peer(r: int) -> int:
        if not 0 <= r < sub.size:
            raise ScheduleError(f"no rank {r} among the {sub.size} of this part")
        return sub.ranks[r]

    for yielded in steps:
        translated: list[Send | Recv | Copy | Fold] = []
        for op in as_step(yielded):
            if isinstance(op, Send):
                peers = tuple(peer(r) for r in op.peers)
                translated.append(Send(peers, chunks(op.chunks), op.lane + lane))
            elif isinstance(op, Recv):
                translated.append(Recv(peer(op.peer), chunks(op.chunks), op.lane + lane))
            elif isinstance(op, Copy):
                translated.append(Copy(chunks(op.to), chunks(op.source)))
            else:
                operands = tuple(
                    Incoming(peer(o.peer), o.lane + lane) if isinstance(o, Incoming) else chunks(o)
                    for o in op.operands
                )
                translated.append(Fold(chunks(op.into), operands))
        yield tuple(translated)
