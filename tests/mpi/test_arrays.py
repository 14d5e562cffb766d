"""Arrays of every layout: strided, read-only, scalar, overlapping."""

from __future__ import annotations

import numpy as np
import pytest
from harness import LAYOUTS, MODES, NAMES, SIZE, Case, check, serving, some_counts, some_matrix

import hpcoll

pytestmark = pytest.mark.mpi


PAIRS = [(a, b) for a in LAYOUTS for b in LAYOUTS]
if SIZE > 2:
    PAIRS = [
        ("C", "F"),
        ("strided", "C"),
        ("reversed", "column"),
        ("column", "strided"),
        ("F", "F"),
    ]


@pytest.mark.parametrize(("layout", "out_layout"), PAIRS)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "barrier"])
def test_layouts_a35(comm: hpcoll.Communicator, name: str, layout: str, out_layout: str) -> None:
    for seed, mode in enumerate(MODES):
        counts: tuple[object, ...] = ()
        if name == "alltoallv":
            counts = some_matrix(3, SIZE, seed, symmetric=False)
        elif name.endswith("v"):
            counts = some_counts(3, SIZE, seed)
        check(comm, Case(name, None, 3, (2, 3), counts=counts, layout=layout,
                         out_layout=out_layout, mode=mode, seed=seed))  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["allreduce", "scan", "exscan", "broadcast", "alltoall", "reduce"])
def test_layouts_in_place(comm: hpcoll.Communicator, name: str, layout: str) -> None:
    for seed, mode in enumerate(MODES):
        check(comm, Case(name, None, 4, (3,), in_place=True, layout=layout, out_layout=layout,
                         mode=mode, seed=seed))  # fmt: skip


def test_read_only_input_a34(comm: hpcoll.Communicator) -> None:
    x = np.frombuffer(np.arange(6.0).tobytes())
    assert not x.flags.writeable
    wide = np.broadcast_to(np.arange(3.0), (4, 3))
    for spec in serving("allreduce"):
        assert np.array_equal(comm.allreduce(x, algorithm=spec), x * comm.size)
        assert np.array_equal(comm.allreduce(wide, algorithm=spec), wide * comm.size)
    assert np.array_equal(comm.broadcast(x), x)
    assert comm.allgather(wide).shape == (comm.size, 4, 3)


def test_scalars_a37(comm: hpcoll.Communicator) -> None:
    for one in (np.array(1.0), np.float64(1.0), 1.0):
        total = comm.allreduce(one)
        assert total.shape == ()
        assert total == comm.size
        assert comm.broadcast(one).shape == ()
        assert comm.allgather(one).shape == (comm.size,)
        assert comm.scan(one) == comm.rank + 1
    x = np.array(2.0)
    assert comm.allreduce(x, out=x) is x
    assert x == 2 * comm.size
    part = comm.scatter(np.arange(comm.size), out=np.empty((), np.int64))
    assert part.shape == ()
    assert part == comm.rank
    part = comm.scatter(np.arange(comm.size) if comm.rank == 0 else None, np.empty((), np.int64))
    assert part == comm.rank
    with pytest.raises(hpcoll.BufferMismatch, match="NumPy array"):
        comm.allreduce(1.0, out=np.float64(0))  # type: ignore[arg-type]
    with pytest.raises(hpcoll.BufferMismatch, match="axis 0"):
        comm.alltoall(1.0)


def test_sequences(comm: hpcoll.Communicator) -> None:
    assert comm.allreduce([1, 2, 3]).tolist() == [comm.size * k for k in (1, 2, 3)]
    assert comm.allgather([[True]]).dtype == bool


@pytest.mark.parametrize("shift", [-3, -1, 1, 3])
def test_overlapping(comm: hpcoll.Communicator, shift: int) -> None:
    """As with a ufunc: the result is as if the input had been copied first."""
    n = 4 * comm.size
    for name in ("allreduce", "scan", "alltoall", "broadcast", "reduce"):
        for spec in serving(name):
            memory = np.arange(n + 3.0) + 100 * comm.rank
            x = memory[max(0, -shift) : max(0, -shift) + n]
            out = memory[max(0, shift) : max(0, shift) + n]
            want = getattr(comm, name)(x.copy(), algorithm=spec)
            got = getattr(comm, name)(x, out=out, algorithm=spec)
            assert got is (None if want is None else out)
            assert want is None or np.array_equal(out, want), f"{name} {spec}"


def test_overlapping_out_of_another_stride(comm: hpcoll.Communicator) -> None:
    for spec in serving("allreduce"):
        memory = np.arange(12.0)
        x, out = memory[:6], memory[::2]
        want = x * comm.size
        comm.allreduce(x, out=out, algorithm=spec)
        assert np.array_equal(out, want)
        memory = np.arange(6.0)
        want = memory[::-1] * comm.size
        comm.allreduce(memory[::-1], out=memory, algorithm=spec)
        assert np.array_equal(memory, want)


@pytest.mark.parametrize("name", ["allgather", "allgatherv", "gather"])
def test_own_slot_as_input_a38(comm: hpcoll.Communicator, name: str) -> None:
    for spec in serving(name):
        n = 4
        out = np.full(n * comm.size, -1, np.int32)
        mine = out[comm.rank * n : (comm.rank + 1) * n]
        mine[:] = comm.rank
        more = {"counts": [n] * comm.size} if name == "allgatherv" else {}
        if name == "gather" and comm.rank:
            assert comm.gather(mine, algorithm=spec) is None
            continue
        getattr(comm, name)(mine, out=out, algorithm=spec, **more)
        assert np.array_equal(out, np.repeat(np.arange(comm.size), n))


def test_in_place_on_some_ranks_only(comm: hpcoll.Communicator) -> None:
    """In place is a local matter: ranks need not agree on it."""
    for name in ("allreduce", "scan", "allgather", "alltoall", "reduce_scatter"):
        for spec in serving(name):
            for turn in range(2):
                case = Case(name, spec, 5, in_place=(comm.rank + turn) % 2 == 0)
                check(comm, case)


def test_in_place_alltoall_a05(comm: hpcoll.Communicator) -> None:
    for spec in serving("alltoall"):
        x = np.full(10 * comm.size, comm.rank, np.uint8)
        comm.alltoall(x, out=x, algorithm=spec)
        assert np.array_equal(x, np.repeat(np.arange(comm.size, dtype=np.uint8), 10))


def test_in_place_allreduce_a01(comm: hpcoll.Communicator) -> None:
    want = [sum(range(comm.size)), sum(1 / r for r in range(1, comm.size))]
    for spec in serving("allreduce"):
        for start in (comm.allreduce, comm.iallreduce):
            x = np.array([comm.rank, 1 / comm.rank if comm.rank else 0.0])
            got = start(x, out=x, algorithm=spec)
            got = got if start == comm.allreduce else got.wait()
            assert got is x
            assert np.allclose(x, want, rtol=1e-15)


def test_reduce_keeps_inputs_a55(comm: hpcoll.Communicator) -> None:
    for spec in serving("reduce"):
        x = np.arange(4.0).reshape(2, 2) + comm.rank
        before = x.copy()
        comm.reduce(x, algorithm=spec)
        assert np.array_equal(x, before)


def test_broadcast_of_another_shape_a42(comm: hpcoll.Communicator) -> None:
    for spec in serving("broadcast"):
        x = np.arange(200, dtype=np.int32).reshape(20, 10)
        mine = x if comm.rank == 0 else np.zeros(200, np.int32)
        got = comm.broadcast(mine, algorithm=spec)
        assert got.shape == mine.shape
        assert np.array_equal(got.ravel(), x.ravel())


def test_what_only_the_root_needs_a41(comm: hpcoll.Communicator) -> None:
    for root in range(comm.size):
        at_root = comm.rank == root
        x = np.arange(3.0) + comm.rank
        wrong = np.zeros(1)  # off the root `out` is not used
        got = comm.reduce(x, out=np.empty(3) if at_root else wrong, root=root)
        assert (got is None) != at_root
        assert wrong[0] == 0
        got = comm.gather(x, out=np.empty((comm.size, 3)) if at_root else None, root=root)
        assert (got is None) != at_root
        rows = np.arange(2.0 * comm.size) if at_root else None
        part = comm.scatter(rows, out=np.empty(2), root=root)
        assert part.tolist() == [2 * comm.rank, 2 * comm.rank + 1]
        y = comm.broadcast(x if at_root else None, out=np.empty(3), root=root)
        assert np.array_equal(y, np.arange(3.0) + root)
