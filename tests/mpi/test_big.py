"""Messages whose bytes don't fit in 31 bits."""

from __future__ import annotations

import numpy as np
import pytest

import hpcoll
from hpcoll.transports.mpi import address_of

pytestmark = [pytest.mark.mpi, pytest.mark.big]

BEYOND = 2**31 + 9


def pattern(n: int, seed: int) -> np.ndarray:
    """Bytes of a period that is no power of two."""
    return np.resize(np.arange(seed, seed + 251, dtype=np.uint8), n)


def has_large_counts() -> bool:
    """Whether MPI takes counts above 2**31 - 1."""
    return bool(address_of("MPI_Ibcast_c"))


def check(got: np.ndarray, want: np.ndarray) -> None:
    """Compare piece by piece, to save memory."""
    assert got.shape == want.shape
    for at in range(0, len(want), 1 << 28):
        assert np.array_equal(got[at : at + (1 << 28)], want[at : at + (1 << 28)]), f"near {at}"


@pytest.mark.parametrize("spec", ["binomial", "native", "auto"])
def test_broadcast(comm: hpcoll.Communicator, spec: str) -> None:
    want = pattern(BEYOND, 3)
    x = want if comm.rank == 0 else np.zeros(BEYOND, np.uint8)
    if spec == "native" and not has_large_counts():
        with pytest.raises(hpcoll.RegistryError, match="no large counts"):
            comm.broadcast(x, out=x, algorithm=spec)
        return
    check(comm.broadcast(x, out=x, algorithm=spec), want)


@pytest.mark.parametrize("spec", ["ring", "native"])
def test_allgather_beyond_in_total(comm: hpcoll.Communicator, spec: str) -> None:
    n = 2**30 + 5
    out = np.zeros(n * comm.size, np.uint8)
    mine = out[n * comm.rank : n * (comm.rank + 1)]
    mine[:] = pattern(n, comm.rank)
    comm.allgather(mine, out=out, algorithm=spec)
    for rank in range(comm.size):
        check(out[n * rank : n * (rank + 1)], pattern(n, rank))


def test_reduce_scatter_beyond_in_total_a47(comm: hpcoll.Communicator) -> None:
    rows = [2**31 + 4099 - 7, 7] + [0] * (comm.size - 2)
    x = pattern(2**31 + 4099, 0)
    got = comm.reduce_scatterv(x, rows, algorithm="ring")
    first = sum(rows[: comm.rank])
    want = x[first : first + rows[comm.rank]]
    for at in range(0, len(want), 1 << 28):
        piece = want[at : at + (1 << 28)] * np.uint8(comm.size)
        assert np.array_equal(got[at : at + (1 << 28)], piece), f"near {at}"


def test_unequal_allgather_beyond_in_total(comm: hpcoll.Communicator) -> None:
    """Whatever is chosen must take offsets beyond 2**31."""
    counts = [7] * (comm.size - 1) + [BEYOND]
    out = np.zeros(sum(counts), np.uint8)
    first = sum(counts[: comm.rank])
    mine = out[first : first + counts[comm.rank]]
    mine[:] = pattern(len(mine), comm.rank)
    comm.allgatherv(mine, out=out, counts=counts)
    for rank in range(comm.size):
        first = sum(counts[:rank])
        check(out[first : first + counts[rank]], pattern(counts[rank], rank))
