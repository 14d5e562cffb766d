"""Time contenders side by side: interleaved in blocks, checked, the slowest rank counts.

Before every call the source is rewritten and all ranks meet at a barrier. A
contender's time is the median of its best block; ratios are also taken block by
block, and their quartiles tell the spread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.bench.data import GUARD, VARIANTS, Case
from hpcoll.runtime.arrays import Array
from hpcoll.runtime.bootstrap import mpi

BLOCKS = 10
BLOCK_S = 0.02
WARMUP_S = 2.0
MOST_CALLS = 400
FEWEST_CALLS = 3

Empty = Callable[[int, np.dtype[Any]], Array]
"""Makes an array of so many elements, like ``numpy.empty``."""


@dataclass
class Arrays:
    """The arrays of one rank for one case.

    Attributes
    ----------
    source, target : ndarray
        What calls read and write; the same memory where the case is in place.
    inputs, expected : list of ndarray
        For each variant.
    room : ndarray
        Target with its guard.
    """

    source: Array
    target: Array
    inputs: list[Array]
    expected: list[Array]
    room: Array

    @classmethod
    def of(cls, case: Case, *, in_place: bool, empty: Empty = np.empty) -> Arrays:
        """Arrays for a case; `empty` makes those that calls read and write."""
        inputs = [case.input(case.rank, v) for v in range(VARIANTS)]
        expected = [case.expected(v) for v in range(VARIANTS)]
        count, out = case.count, case.output_count()
        if case.base in ("broadcast", "scatter") and case.rank != case.root:
            inputs = [np.empty(0, case.dtype)] * VARIANTS
            count = 0
        if not in_place:
            room = empty(out + GUARD, case.dtype)
            return cls(empty(count, case.dtype), room[:out], inputs, expected, room)
        room = empty(max(count, out) + GUARD, case.dtype)
        start = 0
        if case.base in ("allgather", "gather", "reduce_scatter", "scatter"):
            start = sum(case.rows[: case.rank])
        if case.base in ("allgather", "gather") and out:
            return cls(room[start : start + count], room[:out], inputs, expected, room)
        if case.base in ("reduce_scatter", "scatter") and count:
            return cls(room[:count], room[start : start + out], inputs, expected, room)
        return cls(room[:count], room[:out], inputs, expected, room)

    def load(self, variant: int) -> None:
        """Rewrite the source."""
        np.copyto(self.source, self.inputs[variant])

    @property
    def _poison(self) -> Any:
        """A value that no result has; True for bool, which has no third one."""
        return self.room.dtype.type(77 if self.room.dtype.kind != "b" else True)

    def poison(self, variant: int) -> None:
        """Fill target and guard with what no result holds, then load the source."""
        self.room[...] = self._poison
        self.load(variant)

    def wrong(self, variant: int) -> int:
        """Elements of target and guard that are not what they must be."""
        want = self.expected[variant]  # empty on rank 0 of exscan, whose result is undefined
        bad = np.count_nonzero(self.target[: want.size] != want)
        return int(bad + np.count_nonzero(self.room[-GUARD:] != self._poison))


@dataclass
class Contender:
    """Something to time.

    Attributes
    ----------
    name : str
        For the row.
    call : callable
        Runs it once.
    arrays : Arrays
        What it reads and writes.
    """

    name: str
    call: Callable[[], Any]
    arrays: Arrays
    medians: list[float] = field(default_factory=list)
    samples: list[NDArray[np.float64]] = field(default_factory=list)
    wrong: int = 0
    calls: int = 0
    warmups: int = 0

    @property
    def time_us(self) -> float:
        """Median of the best block."""
        return min(self.medians)

    @property
    def min_us(self) -> float:
        """The fastest call."""
        return float(min(s.min() for s in self.samples))

    @property
    def p95_us(self) -> float:
        """The 95th percentile of all calls."""
        return float(np.percentile(np.concatenate(self.samples), 95))


class Meter:
    """Times contenders on all ranks of a communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        For the meter's own messages.
    meet : callable
        The barrier before every call.
    iterations, warmup : int or None
        Calls to measure, calls before them; by default as many as fit the time.
    """

    def __init__(
        self, comm: Any, meet: Callable[[], None], iterations: int | None, warmup: int | None
    ) -> None:
        self._comm = comm
        self._meet = meet
        self._iterations = iterations
        self._warmup = warmup
        self._max = mpi().MAX

    def run(self, contenders: list[Contender]) -> None:
        """Check and time contenders, block by block in turn."""
        for contender in contenders:
            self._check(contender)
        calls = {id(c): self._warm_up(c) for c in contenders}
        blocks = BLOCKS if self._iterations is None else min(BLOCKS, self._iterations)
        for turn in range(blocks):
            first = turn % len(contenders)  # nobody always runs after the same one
            for contender in contenders[first:] + contenders[:first]:
                self._block(contender, calls[id(contender)])
        for contender in contenders:
            self._check(contender)
            contender.wrong = int(self._over_ranks(contender.wrong, mpi().SUM))

    def _over_ranks(self, value: float, op: Any) -> float:
        """A number combined over all ranks."""
        number = np.array([value], np.float64)
        self._comm.Allreduce(mpi().IN_PLACE, number, op=op)
        return float(number[0])

    def _check(self, contender: Contender) -> None:
        """Run every variant once on a poisoned output."""
        arrays = contender.arrays
        for variant in range(VARIANTS):
            arrays.poison(variant)
            self._meet()
            contender.call()
            contender.wrong += arrays.wrong(variant)

    def _warm_up(self, contender: Contender) -> int:
        """Warm up; return how many calls make a block."""
        if self._warmup is not None:
            for _ in range(self._warmup):
                self._once(contender, 0)
            contender.warmups = self._warmup
        start = time.perf_counter()
        least = float("inf")
        for turn in range(5 if self._warmup is None else 1):
            least = min(least, self._once(contender, turn % VARIANTS))
            contender.warmups += self._warmup is None
            if self._over_ranks(time.perf_counter() - start, self._max) > WARMUP_S:
                break
        if self._iterations is not None:
            blocks = min(BLOCKS, self._iterations)
            return -(-self._iterations // blocks)
        slowest = self._over_ranks(least, self._max)
        return int(min(MOST_CALLS, max(FEWEST_CALLS, BLOCK_S / max(slowest, 1e-7))))

    def _once(self, contender: Contender, variant: int) -> float:
        contender.arrays.load(variant)
        self._meet()
        start = time.perf_counter_ns()
        contender.call()
        return (time.perf_counter_ns() - start) / 1e9

    def _block(self, contender: Contender, calls: int) -> None:
        clock, meet, call = time.perf_counter_ns, self._meet, contender.call
        source, inputs = contender.arrays.source, contender.arrays.inputs
        times = np.empty(calls)
        self._once(contender, 0)
        for i in range(calls):
            np.copyto(source, inputs[i % VARIANTS])
            meet()
            start = clock()
            call()
            times[i] = clock() - start
        slowest = np.empty_like(times)
        self._comm.Allreduce(times, slowest, op=self._max)
        slowest /= 1e3
        contender.medians.append(float(np.median(slowest)))
        contender.samples.append(slowest)
        contender.calls += calls


def ratios(versus: Contender, ours: Contender) -> tuple[float, float, float]:
    """Versus' time over ours: of the best blocks, and the quartiles of the blocks' own."""
    each = np.array(versus.medians) / np.array(ours.medians)
    low, high = np.percentile(each, [25, 75])
    return versus.time_us / ours.time_us, float(low), float(high)
