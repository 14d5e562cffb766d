"""The compiled engine does what the Python engine does, bit for bit; pieces change nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from harness import (
    NAMES,
    SIZE,
    Case,
    check,
    options_of,
    serving,
    shape_of,
    some_counts,
    some_matrix,
)

from hpcoll import Communicator
from hpcoll.kernels.dtypes import DTYPES

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "barrier"])
def test_engines_agree(
    comm: Communicator, comm_with: Callable[..., Communicator], name: str, dtype: str
) -> None:
    with comm_with(engine="python") as slow:
        for seed, spec in enumerate(serving(name, dtype=dtype)):
            counts: tuple[object, ...] = ()
            if name == "alltoallv":
                counts = some_matrix(9, SIZE, seed, symmetric=False)
            elif name.endswith("v"):
                counts = some_counts(40, SIZE, seed)
            case = Case(name, spec, 37, counts=counts, dtype=dtype)
            random = np.random.default_rng([seed, comm.rank])
            x = random.standard_normal(shape_of(case, comm.rank, SIZE)).astype(DTYPES[dtype])
            got = [getattr(c, name)(x, **options_of(case, comm.rank)) for c in (comm, slow)]
            if got[0] is None:
                assert got[1] is None
                continue
            assert np.array_equal(got[0].view(np.uint8), got[1].view(np.uint8)), f"{case}"


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize("nbytes", [1, 8, 1000])
def test_messages_in_pieces(
    comm_with: Callable[..., Communicator], engine: str, nbytes: int
) -> None:
    with comm_with(engine=engine, max_message_nbytes=nbytes) as comm:
        for name in ("allreduce", "alltoall", "broadcast", "reduce_scatter", "allgather", "scan"):
            for seed, spec in enumerate(serving(name)):
                rows = 300 if nbytes == 1000 else 5
                check(comm, Case(name, spec, rows, seed=seed, in_place=seed % 2 == 0))
