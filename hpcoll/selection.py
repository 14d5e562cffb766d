"""Which algorithm serves a call, and why.

The choice sees what is equal on all ranks (collective, ranks, bytes, operator, dtype),
never the rank, so all ranks choose alike. A pinned algorithm that doesn't fit is an
error, never a fallback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2, sqrt

from hpcoll.errors import RegistryError, ScheduleError
from hpcoll.runtime.native import INT_MAX, native_refuses
from hpcoll.schedule import registry
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.counts import count, unit_of
from hpcoll.schedule.operations import Fold, Recv, Send, Step, messages_in
from hpcoll.schedule.ops import Op
from hpcoll.schedule.simulate import Simulation
from hpcoll.schedule.symbols import Symbols
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

ALPHA_US = 0.5
"""Latency of a step (us): what it costs that a step waits for the one before.

These constants are those of MPI messages inside a node, fitted to what bench measured
with MPICH and Open MPI on 2 and 4 ranks; see `explain` for what they lead to.
"""

OVERHEAD_US = 0.7
"""Time that a message takes a rank (us), however many go on at once."""

BETA_US = 1 / 4000
"""Time of a byte sent (us): 4 GB/s."""

GAMMA_US = 1 / 30000
"""Time of a byte reduced (us): 30 GB/s, in cache."""

CLOSE = 1.05
"""Within this factor the model can't tell algorithms apart: the fewest steps win."""

NATIVE_FROM: dict[str, tuple[int, str]] = {
    "allgather": (2 << 20, "bench saw it 3 to 20 % faster with MPICH and Open MPI"),
}
"""From how many bytes on the library's own collective is taken, and why: it has no
schedule to count, so only measurements speak for it. Up to the counts that every library
takes."""

STEPS_LIMIT = 20_000
"""Above so many steps a schedule is not looked at: others are far better."""

COUNTED_WHOLE = 4000
"""Up to so many messages of all ranks a schedule is counted as a whole."""

SEGMENTS_LIMIT = 64
"""The most segments that a message is cut into of itself."""

PAIRS_LIMIT = 4096
"""Above so many ranks the pairs of an alltoall are too many to look at."""

PROOF_RANKS = 64
"""Up to so many ranks an algorithm from outside is proved before its first run."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What rank 0 (or the root) does in an algorithm, and the time that it should take.

    Attributes
    ----------
    steps, messages : int
        Messages that wait for each other, and messages one after another where a rank
        sends one and receives one at a time.
    nbytes, reduced : int
        Bytes sent, and bytes reduced.
    time_us : float
        ``steps * alpha + messages * overhead + nbytes * beta + reduced * gamma``.
    """

    steps: int
    messages: int
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
                lines.append(f"  {name}: {cost}")
            else:
                lines.append(
                    f"  {name}: {cost.time_us:.1f} us by the model ({cost.steps} steps, "
                    f"{cost.messages} messages, {cost.nbytes} B sent, {cost.reduced} B reduced)"
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
        return Choice(fitted(algorithm, size, nbytes, root, topology), "asked for by name")
    fit: list[tuple[Algorithm, Cost]] = []
    notes: list[tuple[str, Cost | str]] = []
    native: Choice | None = None
    for algorithm in registry.algorithms(collective):
        reason = unfit(algorithm, size, dtype=dtype, op=op, root=root, topology=topology)
        if algorithm.native:
            least, why = NATIVE_FROM.get(collective, (None, "bench saw no gain"))
            if reason is None and size > 1 and least is not None and least <= nbytes <= INT_MAX:
                native = Choice(algorithm, f"from {least} B on: {why}")
            notes.append((algorithm.spec, reason or f"not counted; {_native_note(least, why)}"))
            continue
        if reason is not None:
            notes.append((algorithm.spec, reason))
            continue
        algorithm = fitted(algorithm, size, nbytes, root, topology)
        cost = cost_of(algorithm, size, nbytes, root, topology)
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
    best, cost = min(close, key=lambda ac: (ac[1].steps, ac[1].messages, ac[1].time_us))
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


def fitted(
    algorithm: Algorithm,
    size: int,
    nbytes: int,
    root: int = 0,
    topology: Topology | None = None,
) -> Algorithm:
    """The algorithm with as many segments as suit the message, unless the user said so.

    A pipeline of s segments takes ``(a + b s) (latency + nbytes / s * beta)``, which is
    least for ``s = sqrt(a nbytes beta / (b latency))``; a and b are counted from the
    schedules of one and of two segments. A power of two is taken, so that few schedules
    serve all sizes.
    """
    if "segments" not in dict(algorithm.tunables) or "segments" in algorithm.given:
        return algorithm

    def cut(segments: int) -> Algorithm:
        tunables = {**dict(algorithm.tunables), "segments": segments}
        return replace(algorithm, tunables=tuple(tunables.items()))

    one = _counted(cut(1), size, root, topology)
    two = _counted(cut(2), size, root, topology)
    if one is None or two is None or two[0] <= one[0]:
        return cut(1)
    each = two[0] - one[0]
    best = sqrt((one[0] - each) * nbytes * BETA_US / (each * (ALPHA_US + OVERHEAD_US)))
    return cut(min(SEGMENTS_LIMIT, 1 << round(log2(max(best, 1)))))


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
    depth, messages, sent, reduced = counted
    out, folded = int(sent * nbytes), int(reduced * nbytes)
    time_us = depth * ALPHA_US + messages * OVERHEAD_US + out * BETA_US + folded * GAMMA_US
    return Cost(depth, messages, out, folded, time_us)


@lru_cache(maxsize=4096)
def _counted(
    algorithm: Algorithm, size: int, root: int, topology: Topology | None
) -> tuple[int, int, float, float] | None:
    """Depth, messages one after another, share of the message sent, share reduced.

    Short schedules are run on symbols and counted as a whole; of long ones the
    busiest of a few ranks is taken, without what it waits for.
    """
    p = algorithm.problem(0, size, root=root, topology=topology)
    if algorithm.collective == "alltoall" and size > PAIRS_LIMIT:
        return None
    ranks = sorted({0, 1 % size, size // 2, size - 1, root})
    schedules = {r: algorithm.steps(p.at(r)) for r in ranks}
    if max(map(len, schedules.values())) > STEPS_LIMIT:
        return None
    local = [_own_share(steps) for steps in schedules.values()]
    unit = float(unit_of(p))
    if size * max(messages for _, messages, _, _ in local) <= COUNTED_WHOLE:
        problems = [p.at(r) for r in range(size)]
        whole = [schedules.get(q.rank) or algorithm.stream(q) for q in problems]
        c = count(problems, Simulation(problems, whole, Symbols()).run())
        return c.depth, c.rounds, float(max(c.volume, c.path)), float(c.reductions)
    depth, messages, sent, reduced = (max(column) for column in zip(*local, strict=True))
    return depth, messages, sent * unit, reduced * unit


def _own_share(steps: list[Step]) -> tuple[int, int, int, int]:
    """Steps, messages, chunks moved and chunks reduced of one rank."""
    messages = sent = reduced = 0
    for step in steps:
        sends = [op for op in step if isinstance(op, Send)]
        arriving = [(op, len(messages_in(op))) for op in step if not isinstance(op, Send)]
        messages += max(sum(len(op.peers) for op in sends), sum(n for _, n in arriving))
        sent += max(
            sum(len(op.peers) * len(op.chunks) for op in sends),
            sum(n * len(op.into if isinstance(op, Fold) else op.chunks)
                for op, n in arriving if isinstance(op, (Fold, Recv))),
        )  # fmt: skip
        reduced += sum((len(op.operands) - 1) * len(op.into) for op in step if isinstance(op, Fold))
    return len(steps), messages, sent, reduced


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
