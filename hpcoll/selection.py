"""Which algorithm serves a call, and why.

The choice sees what is equal on all ranks (collective, ranks, bytes, operator, dtype),
never the rank, so all ranks choose alike. A pinned algorithm that doesn't fit is an
error, never a fallback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from hpcoll.cost import STEPS_LIMIT, Cost, cost_of, fitted
from hpcoll.errors import RegistryError, ScheduleError
from hpcoll.runtime.native import INT_MAX, native_refuses
from hpcoll.schedule import registry
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.ops import Op
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

CLOSE = 1.05
"""Within this factor the model can't tell algorithms apart: the fewest steps win."""

PLAIN = (
    "recursive_doubling", "two_shot", "recursive_halving_doubling", "recursive_halving",
    "spread_out", "pairwise", "bruck", "binomial", "direct", "one_shot", "dissemination",
    "circulant",
)  # fmt: skip
"""Of algorithms that cost the same by the model, the first of these is taken: others reach
their counts by detours that pay off on networks which the model doesn't know."""

NATIVE_FROM: dict[tuple[str, str], tuple[int, str]] = {
    ("mpi", "allgather"): (2 << 20, "bench saw it 3 to 20 % faster with MPICH and Open MPI"),
}
"""From how many bytes on the library's own collective is taken, and why: it has no
schedule to count, so only measurements speak for it. Up to the counts that every library
takes."""

PROOF_RANKS = 64
"""Up to so many ranks an algorithm from outside is proved before its first run."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm for a call.

    Attributes
    ----------
    algorithm : Algorithm
        What runs.
    reason : str
        Why.
    candidates : tuple of (str, Cost or str)
        The others: their cost, or why they can't serve.
    transport : str
        What its messages go over, and why; empty where that isn't known.
    """

    algorithm: Algorithm
    reason: str
    candidates: tuple[tuple[str, Cost | str], ...] = ()
    transport: str = ""

    def __str__(self) -> str:
        lines = [f"{self.algorithm.spec}: {self.reason}"]
        if self.transport:
            lines.append(f"  over {self.transport}")
        for name, cost in self.candidates:
            if isinstance(cost, str):
                lines.append(f"  {name}: {cost}")
            else:
                lines.append(
                    f"  {name}: {cost.time_us:.1f} us by the model ({cost.steps} steps, "
                    f"{cost.messages} messages, {cost.nbytes} B sent, {cost.touched} B touched)"
                )
        return "\n".join(lines)


def choose(
    collective: str,
    size: int,
    nbytes: int,
    *,
    dtype: str,
    op: Op | None = None,
    root: int = 0,
    pinned: str | None = None,
    topology: Topology | None = None,
    crowded: bool = False,
    transport: str = "mpi",
) -> Choice:
    """Choose an algorithm.

    Parameters
    ----------
    collective : str
        Base name.
    size : int
        Number of ranks.
    nbytes : int
        Message size as counted by nccl-tests.
    dtype : str
        Name of the dtype.
    op : Op, optional
        The reduction.
    root : int
        The root.
    pinned : str, optional
        The algorithm that the user wants; None for auto.
    topology : Topology, optional
        Which ranks share a node.
    crowded : bool
        Whether some node has more ranks than cores.
    transport : str
        What messages go over.

    Raises
    ------
    RegistryError
        If the pinned algorithm is unknown or can't serve the call, or none can.
    """
    if pinned is not None and pinned != "auto":
        algorithm = registry.find(pinned, collective)
        reason = unfit(algorithm, size, dtype=dtype, op=op, root=root, topology=topology)
        if reason is not None:
            raise RegistryError(f"{algorithm.spec} can't serve this call: {reason}")
        algorithm = fitted(
            algorithm, size, nbytes, root, topology, crowded=crowded, transport=transport
        )
        return Choice(algorithm, "asked for by name")
    fit: list[tuple[Algorithm, Cost]] = []
    notes: list[tuple[str, Cost | str]] = []
    native: Choice | None = None
    for algorithm in registry.algorithms(collective):
        reason = unfit(algorithm, size, dtype=dtype, op=op, root=root, topology=topology)
        if algorithm.native:
            least, why = NATIVE_FROM.get((transport, collective), (None, "bench saw no gain"))
            if reason is None and size > 1 and least is not None and least <= nbytes <= INT_MAX:
                native = Choice(algorithm, f"from {least} B on: {why}")
            notes.append((algorithm.spec, reason or f"not counted; {_native_note(least, why)}"))
            continue
        if reason is not None:
            notes.append((algorithm.spec, reason))
            continue
        algorithm = fitted(
            algorithm, size, nbytes, root, topology, crowded=crowded, transport=transport
        )
        cost = cost_of(
            algorithm, size, nbytes, root, topology, crowded=crowded, transport=transport
        )
        if cost is None:
            notes.append((algorithm.spec, f"more than {STEPS_LIMIT} steps"))
            continue
        notes.append((algorithm.spec, cost))
        fit.append((algorithm, cost))
    if native is not None:
        return replace(native, candidates=tuple(notes[:-1]))
    if not fit:
        return _last_resort(collective, size, dtype, op, root, topology, tuple(notes))
    limit = CLOSE * min(cost.time_us for _, cost in fit)
    close = [(a, c) for a, c in fit if c.time_us <= limit]
    # A hierarchical algorithm on one node is as good as its inner part, and no better.
    best, cost = min(
        close,
        key=lambda ac: (ac[1].steps, ac[1].messages, round(ac[1].time_us, 3), bool(ac[0].parts),
                        _rank(ac[0].name)),
    )  # fmt: skip
    others = sorted(
        ((n, c) for n, c in notes if n != best.spec),
        key=lambda nc: nc[1].time_us if isinstance(nc[1], Cost) else float("inf"),
    )
    tie = " and fewest steps" if len(close) > 1 else ""
    reason = (
        f"least time by the model{tie} for {nbytes} B on {size} ranks: {cost.time_us:.1f} us "
        f"({cost.steps} steps, {cost.messages} messages)"
    )
    return Choice(best, reason, tuple(others))


def _rank(name: str) -> int:
    return PLAIN.index(name) if name in PLAIN else len(PLAIN)


def _native_note(least: int | None, why: str) -> str:
    return f"taken from {least} B on, where {why}" if least is not None else why


def _last_resort(
    collective: str,
    size: int,
    dtype: str,
    op: Op | None,
    root: int,
    topology: Topology | None,
    notes: tuple[tuple[str, Cost | str], ...],
) -> Choice:
    """The native collective where no schedule serves."""
    native = registry.find("native", collective)
    if unfit(native, size, dtype=dtype, op=op, root=root, topology=topology) is None:
        return Choice(native, "no schedule of hpcoll serves this call", notes)
    raise RegistryError(
        f"no algorithm serves {collective} of {dtype} on {size} ranks: "
        + "; ".join(f"{n}: {c}" for n, c in notes)
    )


def unfit(
    algorithm: Algorithm,
    size: int,
    *,
    dtype: str,
    op: Op | None,
    root: int = 0,
    topology: Topology | None = None,
) -> str | None:
    """Why an algorithm can't serve a call; None where it can."""
    if algorithm.native:
        return native_refuses(algorithm.collective, dtype, op)
    commutes = op is None or op.commutes
    p = algorithm.problem(0, size, root=root, commutes=commutes, topology=topology)
    reason = algorithm.refuses(p)
    if reason is not None:
        return reason
    if not commutes and not _keeps_rank_order(algorithm, size, root, topology):
        return f"op {op.name if op else ''} doesn't commute, and it doesn't keep rank order"
    if not _built_in(algorithm) and size <= PROOF_RANKS:
        fault = _fault(algorithm, size)
        if fault is not None:
            return f"its proof fails: {fault}"
    return None


@lru_cache(maxsize=1024)
def _keeps_rank_order(
    algorithm: Algorithm, size: int, root: int, topology: Topology | None
) -> bool:
    topology = topology or Topology.single_node(size)
    proof = prove(algorithm, size, roots=(root,), topology=topology)
    return proof.proved and proof.rank_order


@lru_cache(maxsize=1024)
def _fault(algorithm: Algorithm, size: int) -> str | None:
    try:
        return prove(algorithm, size).fault
    except ScheduleError as error:
        return str(error)


def _built_in(algorithm: Algorithm) -> bool:
    return algorithm.origin.startswith("hpcoll.algorithms.")
