"""An algorithm: a generator in the local view of one rank, and what is said beside it."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hpcoll.errors import HpcollError, RegistryError, ScheduleError
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.operations import Step, as_step
from hpcoll.schedule.problem import Asked, Problem, blocks_of
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
    origin, doc : str
        Where it was registered, as ``module:file``; what it does.
    parts : tuple of Algorithm
        What a combined algorithm is made of.
    given : tuple of str
        The tunables that the user set; others may be derived from the message.
    """

    collective: str
    name: str
    function: Callable[..., Iterator[Any]] | None
    chunks: Callable[..., int]
    when: Callable[..., str | None]
    source: str = ""
    tunables: tuple[tuple[str, int], ...] = ()
    origin: str = ""
    doc: str = ""
    parts: tuple[Algorithm, ...] = ()
    given: tuple[str, ...] = ()

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
    def asked(self) -> str:
        """The name with the tunables that the user set."""
        values = ",".join(f"{k}={v}" for k, v in self.tunables if k in self.given)
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
        module = sys.modules.get(self.origin.partition(":")[0]) or inspect.getmodule(self.function)
        try:
            text = inspect.getsource(module or self.function)
        except (OSError, TypeError):
            text = repr(self.function.__code__.co_code)
        text += "".join(part.digest for part in self.parts)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def tuned(self, **values: int) -> Algorithm:
        """The same algorithm with other tunables.

        Raises
        ------
        RegistryError
            If it has no such tunable, or a value is not an integer from 1 on (or the default).
        """
        known = dict(self.tunables)
        for key, value in values.items():
            if key not in known:
                has = ", ".join(known) or "none"
                raise RegistryError(f"{self.full_name} has no tunable {key!r} (it has: {has})")
            usual = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not usual and value != known[key]:
                raise RegistryError(
                    f"{self.full_name}: {key} must be a positive integer, not {value!r}"
                )
        given = tuple(dict.fromkeys((*self.given, *values)))
        return replace(self, tunables=tuple({**known, **values}.items()), given=given)

    def problem(
        self,
        rank: int,
        size: int,
        *,
        root: int = 0,
        commutes: bool | Asked = True,
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
        least = 0 if kind.owned or kind.name in ("alltoall", "barrier") else 1
        if not isinstance(count, int) or count < least:
            raise ScheduleError(f"{self.full_name}: chunks gave {count!r} for {size} ranks")
        if kind.owned and owners is None:
            if count % size:
                raise ScheduleError(
                    f"{self.full_name}: {count} chunks can't be shared by {size} ranks"
                )
            each = count // size
            blocks = tuple([tuple(range(r * each, r * each + each)) for r in range(size)])
        else:
            blocks = blocks_of(owners, size) if kind.owned and owners is not None else ()
        return replace(p, chunks=count, blocks=blocks)

    def refuses(self, p: Problem) -> str | None:
        """Why the algorithm can't serve a problem; None where it can."""
        reason = self._ask("when", self.when, p)
        if reason is not None and not isinstance(reason, str):
            raise ScheduleError(f"{self.full_name}: when gave {reason!r}: return a text or None")
        return reason

    def _ask(self, what: str, function: Callable[..., Any], p: Problem) -> Any:
        """Call a function of the problem, with those tunables that it names."""
        wanted = _keywords(function)
        values = {k: v for k, v in self.tunables if wanted is None or k in wanted}
        try:
            return function(p, **values)
        except Exception as error:
            raise ScheduleError(
                f"{self.full_name}: {what} failed for {p.size} ranks: "
                f"{type(error).__name__}: {error}"
            ) from error

    def generate(self, p: Problem) -> Iterator[Any]:
        """What one rank does, as the algorithm yields it: to be made a part of another.

        Raises
        ------
        ScheduleError
            If it has no schedule, or is no generator.
        """
        if self.function is None:
            raise ScheduleError(f"{self.full_name} has no schedule: it is the library's own")
        generator = self.function(p, **dict(self.tunables))
        if not isinstance(generator, Iterator):
            raise ScheduleError(f"gave {generator!r}: an algorithm must yield its steps")
        return generator

    def stream(self, p: Problem) -> Iterator[Step]:
        """The schedule of one rank, step by step.

        Raises
        ------
        ScheduleError
            If the generator fails, yields something else than operations, or does
            not end.
        """
        count = 0
        try:
            for yielded in self.generate(p):
                yield as_step(yielded)
                count += 1
                if count > STEP_LIMIT:
                    raise ScheduleError(f"more than {STEP_LIMIT} steps: does it ever end?")
        except ScheduleError as error:
            raise ScheduleError(
                f"rank {p.rank}/{p.size} {self.full_name} step {count}: {error}"
            ) from None
        except HpcollError:
            raise
        except Exception as error:
            raise ScheduleError(
                f"rank {p.rank}/{p.size} {self.full_name} step {count}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def steps(self, p: Problem) -> list[Step]:
        """The whole schedule of one rank; raises as `stream` does."""
        return list(self.stream(p))


@cache
def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """The keyword parameters that a function names; None where it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(q.kind is inspect.Parameter.VAR_KEYWORD for q in parameters):
        return None
    return frozenset(q.name for q in parameters if q.kind is inspect.Parameter.KEYWORD_ONLY)
