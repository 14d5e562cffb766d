"""Which algorithm serves a call, and why.

The choice sees what is equal on all ranks (collective, ranks, bytes, operator, dtype),
never the rank, so all ranks choose alike. A pinned algorithm that doesn't fit is an
error, never a fallback.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from hpcoll.errors import RegistryError, ScheduleError
from hpcoll.runtime.native import native_refuses
from hpcoll.schedule import registry
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.counts import unit_of
from hpcoll.schedule.operations import Fold, Send, messages_in
from hpcoll.schedule.ops import Op
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

ALPHA_US = 1.0
"""Latency of a message (us): an MPI message inside a node, as bench shows it."""

BETA_US = 1 / 4000
"""Time of a byte sent (us): 4 GB/s."""

GAMMA_US = 1 / 8000
"""Time of a byte reduced (us): 8 GB/s."""

STEPS_LIMIT = 20_000
"""Above so many steps a schedule is not looked at: others are far better."""

PROOF_RANKS = 64
"""Up to so many ranks an algorithm from outside is proved before its first run."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What rank 0 (or the root) does in an algorithm, and the time that it should take.

    Attributes
    ----------
    rounds : int
        Messages one after another.
    nbytes, reduced : int
        Bytes sent, and bytes reduced.
    time_us : float
        By the model ``rounds * alpha + nbytes * beta + reduced * gamma``.
    """

    rounds: int
    nbytes: int
    reduced: int
    time_us: float


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
    """

    algorithm: Algorithm
    reason: str
    candidates: tuple[tuple[str, Cost | str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.algorithm.spec}: {self.reason}"]
        for name, cost in self.candidates:
            if isinstance(cost, str):
                lines.append(f"  {name}: not usable: {cost}")
            else:
                lines.append(
                    f"  {name}: {cost.time_us:.1f} us by the model ({cost.rounds} rounds, "
                    f"{cost.nbytes} B sent, {cost.reduced} B reduced)"
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
        return Choice(algorithm, "asked for by name")
    usable: list[tuple[float, int, Algorithm, Cost]] = []
    notes: list[tuple[str, Cost | str]] = []
    for order, algorithm in enumerate(registry.algorithms(collective)):
        reason = unfit(algorithm, size, dtype=dtype, op=op, root=root, topology=topology)
        if reason is None and algorithm.native:
            notes.append((algorithm.spec, "native: no schedule to count; pin it to use it"))
            continue
        cost = None if reason else cost_of(algorithm, size, nbytes, root, topology)
        if reason is None and cost is None:
            reason = f"more than {STEPS_LIMIT} steps"
        if cost is None:
            notes.append((algorithm.spec, reason or ""))
            continue
        notes.append((algorithm.spec, cost))
        usable.append((cost.time_us, order, algorithm, cost))
    if not usable:
        native = registry.find("native", collective)
        reason = unfit(native, size, dtype=dtype, op=op, root=root, topology=topology)
        if reason is None:
            return Choice(native, "no schedule of hpcoll serves this call", tuple(notes))
        raise RegistryError(
            f"no algorithm serves {collective} of {dtype} on {size} ranks: "
            + "; ".join(f"{n}: {c}" for n, c in notes)
        )
    best = min(usable, key=lambda u: u[:2])
    others = sorted(
        ((n, c) for n, c in notes if n != best[2].spec),
        key=lambda nc: nc[1].time_us if isinstance(nc[1], Cost) else float("inf"),
    )
    reason = (
        f"least time by the model for {nbytes} B on {size} ranks: {best[3].time_us:.1f} us "
        f"({best[3].rounds} rounds)"
    )
    return Choice(best[2], reason, tuple(others))


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
    if not commutes and not _keeps_rank_order(algorithm, size, root):
        return f"op {op.name if op else ''} doesn't commute, and it doesn't keep rank order"
    if not _built_in(algorithm) and size <= PROOF_RANKS:
        fault = _fault(algorithm, size)
        if fault is not None:
            return f"its proof fails: {fault}"
    return None


def cost_of(
    algorithm: Algorithm,
    size: int,
    nbytes: int,
    root: int = 0,
    topology: Topology | None = None,
) -> Cost | None:
    """The cost of an algorithm by the model; None where its schedule is too long."""
    counted = _counted(algorithm, size, root, topology)
    if counted is None:
        return None
    rounds, sent, reduced = counted
    out, folded = int(sent * nbytes), int(reduced * nbytes)
    return Cost(rounds, out, folded, rounds * ALPHA_US + out * BETA_US + folded * GAMMA_US)


@lru_cache(maxsize=4096)
def _counted(
    algorithm: Algorithm, size: int, root: int, topology: Topology | None
) -> tuple[int, float, float] | None:
    """Rounds, share of the message sent and share reduced, of the root's own schedule."""
    p = algorithm.problem(root, size, root=root, topology=topology)
    if p.chunks * (p.size if algorithm.collective == "alltoall" else 1) > STEPS_LIMIT**2:
        return None
    steps = algorithm.steps(p)
    if len(steps) > STEPS_LIMIT:
        return None
    unit = float(unit_of(p))
    rounds, sent, reduced = 0, 0, 0
    for step in steps:
        sends = sum(len(op.peers) for op in step if isinstance(op, Send))
        rounds += max(sends, sum(len(messages_in(op)) for op in step))
        out = sum(len(op.peers) * len(op.chunks) for op in step if isinstance(op, Send))
        received = sum(
            len(op.into) * len(messages_in(op)) if isinstance(op, Fold) else
            len(getattr(op, "chunks", ())) for op in step if messages_in(op)
        )  # fmt: skip
        sent += max(out, received)
        reduced += sum((len(op.operands) - 1) * len(op.into) for op in step if isinstance(op, Fold))
    return rounds, sent * unit, reduced * unit


@lru_cache(maxsize=1024)
def _keeps_rank_order(algorithm: Algorithm, size: int, root: int) -> bool:
    proof = prove(algorithm, size, roots=(root,))
    return proof.proved and proof.rank_order


@lru_cache(maxsize=1024)
def _fault(algorithm: Algorithm, size: int) -> str | None:
    try:
        return prove(algorithm, size).fault
    except ScheduleError as error:
        return str(error)


def _built_in(algorithm: Algorithm) -> bool:
    return algorithm.origin.startswith("hpcoll.algorithms.")


def pins_of(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The algorithms that settings pin, by collective."""
    return dict(settings)
