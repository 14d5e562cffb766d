"""Counts: unequal, zero, left out, wrong; and who is told."""

from __future__ import annotations

import numpy as np
import pytest
from harness import MODES, SIZE, Case, check, serving, some_matrix

import hpcoll

pytestmark = pytest.mark.mpi


def test_own_count_zero_a07(comm: hpcoll.Communicator) -> None:
    off = tuple(tuple(0 if s == d else 4 for d in range(SIZE)) for s in range(SIZE))
    last = SIZE - 1
    idle = tuple(
        tuple(0 if s == d or last in (s, d) else 4 for d in range(SIZE)) for s in range(SIZE)
    )
    for spec in serving("alltoallv"):
        for matrix in (off, idle):
            for mode in MODES:
                check(comm, Case("alltoallv", spec, counts=matrix, mode=mode, in_place=True))


def test_mostly_zero_counts_a08(comm: hpcoll.Communicator) -> None:
    pairs = {(0, 0), (0, 1), (1, 0)}
    matrix = tuple(tuple(int((s, d) in pairs) for d in range(SIZE)) for s in range(SIZE))
    for spec in serving("alltoallv"):
        for told in (True, False):
            check(comm, Case("alltoallv", spec, counts=matrix, dtype="uint8", told=told))


@pytest.mark.parametrize("seed", range(6))
def test_random_matrices(comm: hpcoll.Communicator, seed: int) -> None:
    for spec in serving("alltoallv"):
        matrix = some_matrix(9, SIZE, seed, symmetric=seed % 2 == 0)
        check(comm, Case("alltoallv", spec, rest=(seed % 3,), counts=matrix, seed=seed,
                         mode=MODES[seed % 3], in_place=seed % 2 == 0))  # fmt: skip


@pytest.mark.parametrize("name", ["allgatherv", "gatherv", "scatterv", "reduce_scatterv"])
def test_all_rows_with_one_rank_a13(comm: hpcoll.Communicator, name: str) -> None:
    for owner in range(SIZE):
        counts = tuple(25 if r == owner else 0 for r in range(SIZE))
        for spec in serving(name):
            check(comm, Case(name, spec, counts=counts, dtype="float32", root=0))
    spread = tuple(25 // SIZE + (r < 25 % SIZE) for r in range(SIZE))
    for spec in serving(name):
        check(comm, Case(name, spec, counts=spread, dtype="float32", root=SIZE - 1))


def test_rows_that_do_not_divide_a13(comm: hpcoll.Communicator) -> None:
    if comm.size > 1:
        for name in ("reduce_scatter", "alltoall", "scatter"):
            with pytest.raises(hpcoll.BufferMismatch, match=f"{comm.size + 1} rows.*{name}v"):
                getattr(comm, name)(np.ones(comm.size + 1))
    assert comm.allreduce(1) == comm.size


@pytest.mark.parametrize("kind", [None, "float64"])
def test_nothing_to_do_a09(comm: hpcoll.Communicator, kind: str | None) -> None:
    for name in ("allreduce", "scan", "exscan", "reduce", "reduce_scatter", "alltoall"):
        for spec in serving(name):
            if kind is None:
                with pytest.raises(hpcoll.BufferMismatch, match="None"):
                    getattr(comm, name)(None, algorithm=spec)
                continue
            x = np.empty(0)
            for out in (None, x, np.empty(0)):
                got = getattr(comm, name)(x, out=out, algorithm=spec)
                assert got is None or got.shape == (0,)
            with pytest.raises(hpcoll.ConfigError if name != "alltoall" else TypeError):
                getattr(comm, name)(x, op="plus")


def test_pair_that_disagrees_is_named(comm: hpcoll.Communicator) -> None:
    if comm.size == 1:
        return
    send = [2] * comm.size
    receive = list(send)
    if comm.rank == comm.size - 1:
        receive[0] = 3
    x = np.zeros(2 * comm.size)
    with pytest.raises(hpcoll.MismatchError) as caught:
        comm.alltoallv(x, send, receive)
    text = str(caught.value)
    assert f"rank 0 sends 2 rows to rank {comm.size - 1}, which expects 3" in text
    assert comm.allreduce(1) == comm.size


@pytest.mark.parametrize("name", ["allreduce", "allgather", "reduce_scatter", "broadcast", "scan"])
def test_odd_length_is_named_a43(comm: hpcoll.Communicator, name: str) -> None:
    if comm.size < 3:
        return
    for a, b in ((100, 200), (1, 2)):
        rows = a if comm.rank == 1 else b
        with pytest.raises(hpcoll.MismatchError) as caught:
            getattr(comm, name)(np.ones((rows * comm.size, 3), np.float32))
        text = str(caught.value)
        assert "rank 1 called" in text, text
        whole = name not in ("allgather", "reduce_scatter")
        parts = comm.size if whole or name == "allgather" else 1
        assert str(3 * a * parts) in text, text
        assert str(3 * b * parts) in text, text
    assert comm.allreduce(1) == comm.size


def test_counts_that_differ(comm: hpcoll.Communicator) -> None:
    if comm.size < 3:
        return
    counts = [2] * comm.size
    if comm.rank == comm.size - 1:
        counts[0] = 3
    with pytest.raises(hpcoll.MismatchError, match=f"rank {comm.size - 1} called"):
        comm.allgatherv(np.zeros(2), counts=counts)
    with pytest.raises(hpcoll.MismatchError):
        comm.allgatherv(np.zeros(2), counts=None if comm.rank == 0 else [2] * comm.size)
    assert comm.allreduce(1) == comm.size
