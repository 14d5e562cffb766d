"""What an algorithm should cost on this kind of machine, by a model of its messages.

The schedule is counted, not the message: one count serves all sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2, sqrt

from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.counts import are_neighbours, count, unit_of
from hpcoll.schedule.operations import Fold, Recv, Send, Step, messages_in, written_by
from hpcoll.schedule.simulate import Simulation
from hpcoll.schedule.symbols import Symbols
from hpcoll.schedule.topology import Topology

ALPHA_US = 0.5
"""Latency of a step (us): what it costs that a step waits for the one before.

These constants are those of MPI messages inside a node, fitted to what bench measured
with MPICH and Open MPI on 2 and 4 ranks; see `explain` for what they lead to.
"""

OVERHEAD_US = 0.7
"""Time that a message takes a rank (us), however many go on at once."""

CROWDED_OVERHEAD_US = 2.0
"""The same where ranks outnumber cores: a message often waits until its rank gets a core.

Fitted to 4, 5 and 8 ranks on 2 cores with MPICH and Open MPI, 19 algorithms from 8 B to
8 MiB: what it chooses took 1.16 times as long as the fastest (geometric mean), 1.20 with
the overhead of free cores.
"""

BETA_US = 1 / 4000
"""Time of a byte sent (us): 4 GB/s."""

GAMMA_US = 1 / 90000
"""Time of a byte that is read or written to fold or pack (us): 90 GB/s, in cache."""

STEPS_LIMIT = 20_000
"""Above so many steps a schedule is not looked at: others are far better."""

COUNTED_WHOLE = 4000
"""Up to so many messages of all ranks a schedule is counted as a whole."""

SEGMENTS_LIMIT = 64
"""The most segments that a message is cut into of itself."""

PAIRS_LIMIT = 4096
"""Above so many ranks the pairs of an alltoall are too many to look at."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What rank 0 (or the root) does in an algorithm, and the time that it should take.

    Attributes
    ----------
    steps, messages : int
        Messages that wait for each other, and messages one after another where a rank
        sends one and receives one at a time.
    nbytes, touched : int
        Bytes sent, and bytes that a rank reads and writes to fold and to pack.
    time_us : float
        ``steps * alpha + messages * overhead + nbytes * beta + touched * gamma``.
    """

    steps: int
    messages: int
    nbytes: int
    touched: int
    time_us: float


def fitted(
    algorithm: Algorithm,
    size: int,
    nbytes: int,
    root: int = 0,
    topology: Topology | None = None,
    *,
    crowded: bool = False,
) -> Algorithm:
    """The algorithm with as many segments as suit the message, unless the user said so.

    A pipeline of s segments takes ``(a + b s) (latency + nbytes / s * beta)``, which is
    least for ``s = sqrt(a nbytes beta / (b latency))``; a and b are the rounds that are
    counted of the schedules of one and of two segments. A power of two is taken, so that
    few schedules serve all sizes. Where ranks outnumber cores nothing is cut: whoever waits
    for a segment loses its core (on 4 ranks and 2 cores, bench saw 4 segments take 1.4 to
    3.5 times as long as a binomial tree).
    """
    if "segments" not in dict(algorithm.tunables) or "segments" in algorithm.given:
        return algorithm

    def cut(segments: int) -> Algorithm:
        tunables = {**dict(algorithm.tunables), "segments": segments}
        return replace(algorithm, tunables=tuple(tunables.items()))

    if crowded:
        return cut(1)
    one = _counted(cut(1), size, root, topology)
    two = _counted(cut(2), size, root, topology)
    if one is None or two is None or two[1] <= one[1]:
        return cut(1)
    each = two[1] - one[1]
    latency = ALPHA_US + OVERHEAD_US
    best = sqrt(max(one[1] - each, 0) * nbytes * BETA_US / (each * latency))
    return cut(min(SEGMENTS_LIMIT, 1 << round(log2(max(best, 1)))))


def cost_of(
    algorithm: Algorithm,
    size: int,
    nbytes: int,
    root: int = 0,
    topology: Topology | None = None,
    *,
    crowded: bool = False,
) -> Cost | None:
    """The cost of an algorithm by the model; None where its schedule is too long."""
    counted = _counted(algorithm, size, root, topology)
    if counted is None:
        return None
    depth, messages, sent, touched = counted
    out, folded = int(sent * nbytes), int(touched * nbytes)
    time_us = depth * ALPHA_US + messages * _overhead(crowded) + out * BETA_US + folded * GAMMA_US
    return Cost(depth, messages, out, folded, time_us)


def _overhead(crowded: bool) -> float:
    return CROWDED_OVERHEAD_US if crowded else OVERHEAD_US


@lru_cache(maxsize=4096)
def _counted(
    algorithm: Algorithm, size: int, root: int, topology: Topology | None
) -> tuple[int, int, float, float] | None:
    """Depth, messages one after another, shares of the message sent and touched.

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
        return c.depth, c.rounds, float(max(c.volume, c.path)), float(c.touched)
    depth, messages, sent, touched = (max(column) for column in zip(*local, strict=True))
    return depth, messages, sent * unit, touched * unit


def _own_share(steps: list[Step]) -> tuple[int, int, int, int]:
    """Steps, messages, chunks moved and chunks touched to fold and to pack of one rank."""
    messages = sent = touched = 0
    for step in steps:
        sends = [op for op in step if isinstance(op, Send)]
        arriving = [(op, len(messages_in(op))) for op in step if not isinstance(op, Send)]
        messages += max(sum(len(op.peers) for op in sends), sum(n for _, n in arriving))
        sent += max(
            sum(len(op.peers) * len(op.chunks) for op in sends),
            sum(n * len(op.into if isinstance(op, Fold) else op.chunks)
                for op, n in arriving if isinstance(op, (Fold, Recv))),
        )  # fmt: skip
        touched += sum((len(op.operands) + 1) * len(op.into) for op in step if isinstance(op, Fold))
        groups = [op.chunks for op in sends] + [written_by(op) for op, n in arriving if n]
        touched += sum(2 * len(chunks) for chunks in groups if not are_neighbours(chunks))
    return len(steps), messages, sent, touched
