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


@dataclass(frozen=True, slots=True)
class Profile:
    """What messages cost over a transport.

    Attributes
    ----------
    alpha_us : float
        Latency of a step (us): what it costs that a step waits for the one before.
    overhead_us : float
        Time that a message takes a rank (us), however many go on at once.
    beta_us : float
        Time of a byte sent (us).
    gamma_us : float
        Time of a byte that is read or written to fold or pack (us), in cache.
    pipelines : bool
        Whether cutting a message into segments can pay off.
    publishes : bool
        Whether what goes to several ranks is written once for all.
    """

    alpha_us: float
    overhead_us: float
    beta_us: float
    gamma_us: float
    pipelines: bool
    publishes: bool


PROFILES = {
    ("mpi", False): Profile(0.5, 0.7, 1 / 4000, 1 / 90000, True, False),
    ("mpi", True): Profile(0.5, 2.0, 1 / 4000, 1 / 90000, False, False),
    ("shm", False): Profile(0.3, 0.1, 1 / 9000, 1 / 30000, False, True),
    ("shm", True): Profile(3.0, 0.3, 1 / 9000, 1 / 30000, False, True),
}
"""By transport, and whether ranks outnumber cores: then whoever waits loses its core.

Those of mpi are of messages inside a node, fitted to what bench measured with MPICH and
Open MPI on 2 and 4 ranks. With more ranks than cores: to 4, 5 and 8 ranks on 2 cores, 19
algorithms from 8 B to 8 MiB; what it chooses took 1.16 times as long as the fastest
(geometric mean), 1.20 with the overhead of free cores. Shared memory cuts messages into
pieces itself.
"""

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
        ``steps * alpha + messages * overhead + nbytes * beta + touched * gamma``, with
        the transport's `Profile`.
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
    transport: str = "mpi",
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

    profile = PROFILES[transport, crowded]
    if not profile.pipelines:
        return cut(1)
    one = _counted(cut(1), size, root, topology, profile.publishes)
    two = _counted(cut(2), size, root, topology, profile.publishes)
    if one is None or two is None or two[1] <= one[1]:
        return cut(1)
    each = two[1] - one[1]
    latency = profile.alpha_us + profile.overhead_us
    best = sqrt(max(one[1] - each, 0) * nbytes * profile.beta_us / (each * latency))
    return cut(min(SEGMENTS_LIMIT, 1 << round(log2(max(best, 1)))))


def cost_of(
    algorithm: Algorithm,
    size: int,
    nbytes: int,
    root: int = 0,
    topology: Topology | None = None,
    *,
    crowded: bool = False,
    transport: str = "mpi",
) -> Cost | None:
    """The cost of an algorithm by the model; None where its schedule is too long."""
    profile = PROFILES[transport, crowded]
    counted = _counted(algorithm, size, root, topology, profile.publishes)
    if counted is None:
        return None
    depth, messages, sent, touched = counted
    out, folded = int(sent * nbytes), int(touched * nbytes)
    time_us = (
        depth * profile.alpha_us + messages * profile.overhead_us
        + out * profile.beta_us + folded * profile.gamma_us
    )  # fmt: skip
    return Cost(depth, messages, out, folded, time_us)


@lru_cache(maxsize=4096)
def _counted(
    algorithm: Algorithm, size: int, root: int, topology: Topology | None, publishes: bool
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
    local = [_own_share(steps, publishes) for steps in schedules.values()]
    unit = float(unit_of(p))
    if size * max(messages for _, messages, _, _ in local) <= COUNTED_WHOLE:
        problems = [p.at(r) for r in range(size)]
        whole = [schedules.get(q.rank) or algorithm.stream(q) for q in problems]
        c = count(problems, Simulation(problems, whole, Symbols()).run())
        sent = max(sent for _, _, sent, _ in local) * unit if publishes else 0.0
        return c.depth, c.rounds, sent or float(max(c.volume, c.path)), float(c.touched)
    depth, messages, sent, touched = (max(column) for column in zip(*local, strict=True))
    return depth, messages, sent * unit, touched * unit


def _own_share(steps: list[Step], publishes: bool) -> tuple[int, int, int, int]:
    """Steps, messages, chunks moved and chunks touched to fold and to pack of one rank.

    Where messages are published, what goes to several ranks is moved once, and what
    arrives for a fold is not moved besides.
    """
    messages = sent = touched = 0
    for step in steps:
        sends = [op for op in step if isinstance(op, Send)]
        arriving = [(op, len(messages_in(op))) for op in step if not isinstance(op, Send)]
        messages += max(sum(len(op.peers) for op in sends), sum(n for _, n in arriving))
        if publishes:
            sent += sum(len(op.chunks) for op in sends)
            sent += sum(n * len(op.chunks) for op, n in arriving if isinstance(op, Recv))
            touched += sum((len(op.operands) + 1) * len(op.into) for op in step
                           if isinstance(op, Fold))  # fmt: skip
            continue
        sent += max(
            sum(len(op.peers) * len(op.chunks) for op in sends),
            sum(n * len(op.into if isinstance(op, Fold) else op.chunks)
                for op, n in arriving if isinstance(op, (Fold, Recv))),
        )  # fmt: skip
        touched += sum((len(op.operands) + 1) * len(op.into) for op in step if isinstance(op, Fold))
        groups = [op.chunks for op in sends] + [written_by(op) for op, n in arriving if n]
        touched += sum(2 * len(chunks) for chunks in groups if not are_neighbours(chunks))
    return len(steps), messages, sent, touched
