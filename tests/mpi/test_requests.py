"""Several calls in flight, plans, small caches, groups, and the end of a communicator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from harness import SIZE, Case, check, serving

import hpcoll
from hpcoll import Communicator
from hpcoll.runtime import progress

pytestmark = pytest.mark.mpi


def test_many_in_flight_finish_in_any_order(comm: Communicator) -> None:
    order = np.random.default_rng(comm.rank).permutation(30)
    requests = []
    for k in range(30):
        x = np.arange(1 + 7 * k) + comm.rank * 1000 + k
        if k % 3 == 0:
            requests.append((comm.iallreduce(x), lambda k=k: _sum(k)))
        elif k % 3 == 1:
            requests.append((comm.ibroadcast(x, root=k % SIZE), lambda k=k: _of(k, k % SIZE)))
        else:
            requests.append(
                (comm.iallgather(x), lambda k=k: np.stack([_of(k, r) for r in range(SIZE)]))
            )
    for k in order:
        request, want = requests[k]
        if k % 2:
            while not request.test():
                pass
        assert np.array_equal(request.wait(), want())
        assert request.done
        assert np.array_equal(request.wait(), want())
    assert not progress.flights


def _of(k: int, rank: int) -> np.ndarray:
    return np.arange(1 + 7 * k) + rank * 1000 + k


def _sum(k: int) -> np.ndarray:
    return sum(_of(k, r) for r in range(SIZE))  # type: ignore[return-value]


def test_same_recipe_many_times_in_flight(comm: Communicator) -> None:
    for spec in serving("allreduce"):
        requests = [comm.iallreduce(np.arange(50.0) + k, algorithm=spec) for k in range(10)]
        blocking = comm.allreduce(np.arange(50.0), algorithm=spec)
        assert np.array_equal(blocking, np.arange(50.0) * SIZE)
        for k, request in reversed(list(enumerate(requests))):
            assert np.array_equal(request.wait(), (np.arange(50.0) + k) * SIZE)


def test_in_flight_on_several_communicators(comm: Communicator) -> None:
    twin = comm.dup()
    a = [(comm, twin)[k % 2].iallreduce(k) for k in range(8)]
    for k in range(8) if comm.rank % 2 else reversed(range(8)):
        assert a[k].wait() == k * SIZE
    twin.close()


def test_plan(comm: Communicator) -> None:
    x, out = np.zeros(100), np.zeros(100)
    plan = comm.plan("allreduce", x, out=out, algorithm="one_shot")
    assert plan.result is out
    assert plan.algorithm == "allreduce/one_shot"
    other = comm.plan("allreduce", x, algorithm="one_shot")
    for k in range(5):
        x[:] = k + comm.rank
        want = k * SIZE + sum(range(SIZE))
        first, second = plan.start(), other.start()
        if not plan._last.done:  # type: ignore[union-attr]
            with pytest.raises(hpcoll.ConfigError, match="still running"):
                plan.start()
        assert np.all(second.wait() == want)
        assert first.wait() is out
        assert np.all(out == want)


def test_small_cache(comm_with: Callable[..., Communicator]) -> None:
    with comm_with(cache_size=2) as comm:
        held = [comm.iallreduce(np.full(n, n), algorithm="ring") for n in range(1, 8)]
        for turn in range(3):
            for n in range(1, 6):
                for name in ("allreduce", "scan", "alltoall"):
                    check(comm, Case(name, None, n, seed=turn))
        assert len(comm._dispatch._entries) <= 2
        for n, request in enumerate(held, 1):
            assert request.wait().tolist() == [n * SIZE] * n


def test_groups_a10(comm: Communicator) -> None:
    half = comm.split(comm.rank % 2, key=-comm.rank)
    assert half is not None
    members = sorted(range(comm.rank % 2, SIZE, 2), reverse=True)
    assert (half.size, half.rank) == (len(members), members.index(comm.rank))
    assert half.allgather(comm.rank).tolist() == members
    first = comm.split(np.int64(0) if comm.rank == 0 else None)  # type: ignore[arg-type]
    if comm.rank == 0:
        assert first is not None
        for n in (0, 1, 7):
            check(first, Case("allreduce", None, n, op="avg"))
            check(first, Case("reduce_scatter", None, n, in_place=True))
        first.barrier()
        first.close()
    else:
        assert first is None
    copy = half.dup()
    half.close()
    assert copy.allreduce(1) == len(members)
    again = copy.split(0)
    assert again is not None
    assert again.allreduce(1) == len(members)
    again.close()
    copy.close()
    copy.close()
    with pytest.raises(hpcoll.TransportError, match="closed"):
        copy.allreduce(1)
    with pytest.raises(hpcoll.TransportError, match="closed"):
        copy.dup()
    with pytest.raises(hpcoll.TransportError, match="closed"):
        copy.split(0)
    assert comm.allreduce(1) == SIZE


def test_closed_plan(comm: Communicator) -> None:
    with comm.dup() as twin:
        plan = twin.plan("allreduce", 1)
        assert plan() == SIZE
    with pytest.raises(hpcoll.TransportError, match="closed"):
        plan()
    with pytest.raises(hpcoll.TransportError, match="closed"):
        plan.start()


def test_explain(comm: Communicator) -> None:
    choice = comm.explain("allreduce", np.zeros(4))
    assert choice.algorithm.collective == "allreduce"
    assert comm.explain("allreduce", nbytes=8, algorithm="ring").algorithm.name == "ring"
    assert comm.plan("allreduce", np.zeros(4)).algorithm == choice.algorithm.spec


def test_long_run_a54(comm: Communicator) -> None:
    random = np.random.default_rng(54)
    rounds = 1500 if SIZE <= 4 else 200
    for k in range(rounds):
        n = int(random.integers(1, 40)) * 125
        x = np.arange(n) + comm.rank + k
        if k % 2:
            root = k // 2 % SIZE
            assert np.array_equal(comm.broadcast(x, root=root), np.arange(n) + root + k)
        else:
            want = (np.arange(n) + k) * SIZE + sum(range(SIZE))
            assert np.array_equal(comm.allreduce(x), want)


def test_repeated_call_with_other_arrays(comm: Communicator) -> None:
    """A call like one before is short, but what differs in the arrays must be seen."""
    for spec in (None, *serving("allreduce")):

        def call(x: np.ndarray, out: np.ndarray, spec: str | None = spec) -> None:
            want = x.copy() * SIZE
            assert comm.allreduce(x, out=out, algorithm=spec) is out
            assert np.array_equal(out, want)

        for _ in range(2):
            x = np.arange(6.0)
            call(x, np.empty(6))
            call(x, x)
            memory = np.arange(14.0)
            call(memory[:6], memory[3:9])
            call(memory[3:9], memory[:6])
            call(memory[::2][:6], np.empty(6))
            call(np.arange(6.0), np.empty(12)[::2])
            call(np.arange(6.0)[::-1], np.empty(6))
            request = comm.iallreduce(np.ones(6), algorithm=spec)
            call(x, np.empty(6))
            assert np.all(request.wait() == SIZE)


def test_repeated_call_with_read_only_output(comm_with: Callable[..., Communicator]) -> None:
    comm = comm_with()
    x, out = np.ones(3), np.empty(3)
    for _ in range(3):
        comm.allreduce(x, out=out)
    out.flags.writeable = False
    for turn in range(2):
        with pytest.raises(hpcoll.BufferMismatch, match="read-only"):
            comm.allreduce(x, out=out)
        assert comm.allreduce(turn) == SIZE * turn
    out = np.empty(3)
    assert comm.allreduce(x, out=out) is out
    assert out.tolist() == [SIZE] * 3
    comm.close()
    with pytest.raises(hpcoll.TransportError, match="closed"):
        comm.allreduce(x, out=out)


def test_small_cache_and_repeated_calls(comm_with: Callable[..., Communicator]) -> None:
    with comm_with(cache_size=1) as comm:
        for turn in range(3):
            for n in (3, 4):
                for _ in range(2):
                    out = np.empty(n)
                    comm.allreduce(np.full(n, 1.0 + turn), out=out)
                    assert np.all(out == (1 + turn) * SIZE)
