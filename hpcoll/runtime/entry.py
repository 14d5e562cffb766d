"""A recipe's place in the cache: its problem, its layouts, and runs that are free."""

from __future__ import annotations

from typing import Any

from hpcoll.runtime.call import Call
from hpcoll.runtime.layout import layout_of
from hpcoll.runtime.lowering import lower
from hpcoll.runtime.recipe import Recipe
from hpcoll.runtime.run import Run
from hpcoll.runtime.session import Session
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.topology import Topology


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
        self._recipes: dict[bool, Recipe] = {}
        self.free: dict[bool, list[Run]] = {False: [], True: []}

    def take(self, *, aliased: bool, pooled: bool) -> Run:
        """A run for arrays that are, or are not, the same memory."""
        if pooled and self.free[aliased]:
            return self.free[aliased].pop()
        recipe = self._recipes.get(aliased)
        if recipe is None:
            recipe = self._recipes[aliased] = self._lower(aliased)
        return Run(recipe, self._session.channel, self._signature, self._op, self._dtype)

    def give_back(self, run: Run) -> None:
        """Take a run back that is no longer in flight."""
        self.free[run.recipe is self._recipes.get(True)].append(run)

    def _lower(self, aliased: bool) -> Recipe:
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
