"""A recipe's place in the cache: its problem, its layouts, and runs that are free."""

from __future__ import annotations

from typing import Any

from hpcoll.errors import HpcollError, TransportUnavailable
from hpcoll.runtime import words
from hpcoll.runtime.call import Call
from hpcoll.runtime.layout import layout_of
from hpcoll.runtime.lowering import lower
from hpcoll.runtime.publications import Draft, draft
from hpcoll.runtime.recipe import Recipe
from hpcoll.runtime.run import Run
from hpcoll.runtime.segments import PAYLOAD_NBYTES
from hpcoll.runtime.session import Session
from hpcoll.runtime.shared_recipe import (
    SharedRecipe,
    Told,
    assemble,
    largest_chunk,
    tell,
)
from hpcoll.runtime.shared_run import SharedRun
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.topology import Topology

READ_FROM_NBYTES = 512 << 10
"""From this size of a chunk on, reading another process's memory is worth the system call."""


class Entry:
    """What is made once for calls that agree on everything but the arrays.

    Parameters
    ----------
    session : Session
        The communicator's runtime.
    topology : Topology
        Which ranks share a node.
    algorithm : Algorithm
        What runs.
    call : Call
        The first such call.
    signature : int
        64 bits that tell it from others.
    key : tuple
        Its key in the cache.
    """

    def __init__(
        self,
        session: Session,
        topology: Topology,
        algorithm: Algorithm,
        call: Call,
        signature: int,
        key: tuple[Any, ...],
    ) -> None:
        self.algorithm = algorithm
        self.key = key
        self.in_place_at = call.in_place_at * call.dtype.itemsize
        self.name = algorithm.full_name
        self._session = session
        self._signature = signature
        self._dtype, self._op = call.dtype, call.op
        op = "" if call.op is None else call.op.name
        # How many operands this rank's result is made of: the scans' averages count their own.
        terms = {"scan": session.rank + 1, "exscan": session.rank}.get(
            call.collective, session.size
        )
        self._divisor = terms if op == "avg" else 0
        self._lone = terms == 1 and op in ("land", "lor", "lxor")
        self._problem = algorithm.problem(
            session.rank,
            session.size,
            root=call.root,
            commutes=call.op is None or call.op.commutes,
            topology=topology,
        )
        width = call.op.width if call.op else 1
        self._layout = layout_of(self._problem, call.counts, width, call.dtype.itemsize)
        counts: Any = call.counts
        rank = session.rank
        self.may_alias = call.collective != "alltoall" or all(
            counts[rank][peer] == counts[peer][rank] for peer in range(session.size)
        )
        self._recipes: dict[bool, Recipe | SharedRecipe] = {}
        self.shared = session.channel.name == "shm" and not algorithm.native
        self._told: list[Told] = []
        self._first: Draft | None = None
        self.free: dict[bool, list[Run]] = {False: [], True: []}

    def take(self, *, aliased: bool, pooled: bool) -> Run:
        """A run for arrays that are, or are not, the same memory."""
        if pooled and self.free[aliased]:
            return self.free[aliased].pop()
        recipe = self._recipes.get(aliased)
        if recipe is None:
            recipe = self._recipes[aliased] = self._lower(aliased)
        channel = self._session.channel
        if isinstance(recipe, SharedRecipe):
            run: Run = SharedRun(
                recipe, channel, self._signature, self._op, self._dtype,
                bases=channel.segment_bases, spins=not self._session.crowded,
            )  # fmt: skip
        else:
            run = Run(recipe, channel, self._signature, self._op, self._dtype)
        run.table[words.ALIASED] = aliased
        run.table[words.SOURCE_NBYTES] = self._layout.src_nbytes
        run.table[words.TARGET_NBYTES] = self._layout.dst_nbytes
        run.table[words.SHIFT] = self.in_place_at
        return run

    def tell(self) -> dict[str, Any]:
        """What the other ranks must know before this rank can run over shared memory."""
        try:
            self._first = self._draft(False)
            blocks = largest_chunk(self._layout) > PAYLOAD_NBYTES
            self._session.channel.reserve_segment(self._first.lines, blocks=blocks)
            return tell(self._first)
        except (HpcollError, MemoryError) as error:
            return {"failure": str(error)}

    def hear(self, brought: dict[int, dict[str, Any]]) -> None:
        """Take what all ranks told.

        Raises
        ------
        TransportUnavailable
            On all ranks, if one can't run it.
        """
        for rank in sorted(brought):
            if "failure" in brought[rank]:
                raise TransportUnavailable(f"rank {rank}: {brought[rank]['failure']}")
        self._told = [Told(brought[rank], self._session.rank) for rank in sorted(brought)]

    def give_back(self, run: Run) -> None:
        """Take a run back that is no longer in flight."""
        self.free[run.recipe is self._recipes.get(True)].append(run)

    def _draft(self, aliased: bool) -> Draft:
        return draft(
            self.algorithm.steps(self._problem),
            self._problem,
            self._layout,
            aliased=aliased,
            divisor=self._divisor,
            lone=self._lone,
        )

    def _lower(self, aliased: bool) -> Recipe | SharedRecipe:
        if self.shared:
            made = None if aliased else self._first
            return assemble(
                made or self._draft(aliased),
                self._told,
                self._problem,
                self._layout,
                offers_memory=self._offers_memory(),
            )
        if self.algorithm.native:
            return self._session.channel.native_rows().lower(  # type: ignore[no-any-return]
                self._problem,
                self._layout,
                dtype=self._dtype.name,
                itemsize=self._dtype.itemsize,
                op=self._op,
                aliased=aliased,
                divisor=self._divisor,
                lone=self._lone,
            )
        return lower(
            self.algorithm,
            self._problem,
            self._layout,
            aliased=aliased,
            divisor=self._divisor,
            lone=self._lone,
            message_limit=self._session.channel.message_limit,
        )

    def _offers_memory(self) -> bool:
        """Whether others read private arrays through the kernel, which saves a copy."""
        large = largest_chunk(self._layout) >= READ_FROM_NBYTES
        return large and self._op is None and self._session.channel.reads_memory
