"""Many short calls: more ranks than cores must not starve each other."""

from __future__ import annotations

import time

import numpy as np
import pytest

import hpcoll

pytestmark = pytest.mark.mpi

CALLS = 2000
LIMIT_S = 60


def test_thousands_of_short_calls(comm: hpcoll.Communicator) -> None:
    x, y = np.zeros(1), np.zeros(1)
    start = time.monotonic()
    for turn in range(CALLS):
        comm.barrier()
        x[0] = comm.rank + turn
        comm.allreduce(x, out=y)
        assert y[0] == comm.size * (comm.size - 1) // 2 + comm.size * turn
    assert time.monotonic() - start < LIMIT_S
