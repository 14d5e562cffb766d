"""What can't be used is refused: by all alike, or on one rank and then on all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpcoll
from hpcoll import BufferMismatch, Communicator, ConfigError, MismatchError, RegistryError

pytestmark = pytest.mark.mpi

Call = Callable[[Communicator, Any], Any]
X = np.arange(4.0)


def read_only(like: Any) -> Any:
    """An array that can't be written."""
    array = like.copy()
    array.flags.writeable = False
    return array


BAD: dict[str, tuple[Call, type[Exception], str]] = {
    "dtype": (lambda c, x: c.allreduce(np.array(["a", "b"])), BufferMismatch, "<U1"),
    "objects": (lambda c, x: c.broadcast(np.array([None, 1])), BufferMismatch, "objects"),
    "big_endian": (lambda c, x: c.allreduce(x.astype(">f8")), BufferMismatch, "byte order|native"),
    "big_endian_moved": (lambda c, x: c.allgather(x.astype(">f8")), BufferMismatch, "byte order"),
    "structured": (lambda c, x: c.scan(np.zeros(2, "i4,f8")), BufferMismatch, "structured"),
    "ragged": (lambda c, x: c.allreduce([[1, 2], [3]]), BufferMismatch, "array"),
    "no_array": (lambda c, x: c.allgather(None), BufferMismatch, "None"),
    "out_dtype": (
        lambda c, x: c.allreduce(x, out=x.astype("f4")), BufferMismatch, "float32.*float64"),
    "out_shape": (lambda c, x: c.allreduce(x, out=np.zeros(9)), BufferMismatch, r"\(9,\)"),
    "out_list": (lambda c, x: c.allreduce(x, out=[0.0]), BufferMismatch, "list"),
    "out_read_only": (lambda c, x: c.allreduce(x, out=read_only(x)), BufferMismatch, "read-only"),
    "out_allgather": (lambda c, x: c.allgather(x, out=np.zeros(3)), BufferMismatch, r"\(3,\)"),
    "op": (lambda c, x: c.allreduce(x, op="plus"), ConfigError, "plus.*sum"),
    "op_number": (lambda c, x: c.allreduce(x, op=3), ConfigError, "3"),
    "op_dtype": (lambda c, x: c.allreduce(x, op="band"), BufferMismatch, "band.*float64"),
    "root": (lambda c, x: c.broadcast(x, root=99), ConfigError, "root.*99"),
    "root_negative": (lambda c, x: c.reduce(x, root=-1), ConfigError, "root.*-1"),
    "root_text": (lambda c, x: c.gather(x, root="0"), ConfigError, "root.*'0'"),
    "algorithm": (lambda c, x: c.allreduce(x, algorithm="rign"), RegistryError, "rign.*ring"),
    "algorithm_other": (
        lambda c, x: c.allreduce(x, algorithm="scan/chain"), RegistryError, "scan/chain"),
    "algorithm_number": (lambda c, x: c.allreduce(x, algorithm=7), ConfigError, "7"),
    "tunable": (
        lambda c, x: c.alltoall(x, algorithm="bruck:radix=no"), RegistryError, "radix=no"),
    "timeout": (lambda c, x: c.allreduce(x, timeout=0), ConfigError, "timeout.*0"),
    "timeout_text": (lambda c, x: c.allreduce(x, timeout="5"), ConfigError, "timeout.*'5'"),
    "timeout_nan": (lambda c, x: c.barrier(timeout=float("nan")), ConfigError, "timeout.*nan"),
    "counts_few": (lambda c, x: c.allgatherv(x, counts=[1] * 99), ConfigError, "counts.*99"),
    "counts_negative": (
        lambda c, x: c.allgatherv(x, counts=[-1] * c.size), ConfigError, "counts.*-1"),
    "counts_real": (lambda c, x: c.allgatherv(x, counts=[4.0] * c.size), ConfigError, "4.0"),
    "counts_sum_a51": (
        lambda c, x: c.reduce_scatterv(x, [20] * c.size), BufferMismatch, "4 rows.*add up to"),
    "counts_own": (lambda c, x: c.allgatherv(x, counts=[3] * c.size), BufferMismatch, "4 rows.*3"),
    "send_counts": (
        lambda c, x: c.alltoallv(x, [20] * c.size), BufferMismatch, "4 rows.*send_counts"),
    "recv_counts": (
        lambda c, x: c.alltoallv(x[:0], [0] * c.size, ["a"] * c.size), ConfigError, "recv_counts"),
    "counts_missing": (lambda c, x: c.plan("scatterv", x), ConfigError, "scatterv needs counts"),
    "counts_unused": (
        lambda c, x: c.plan("alltoall", x, counts=[1] * c.size), ConfigError, "no counts"),
    "collective": (lambda c, x: c.plan("allredux", x), ConfigError, "allredux.*allreduce"),
    "scalar": (lambda c, x: c.alltoall(3.0), BufferMismatch, "axis 0"),
    "color": (lambda c, x: c.split(-1), ConfigError, "color.*-1"),
    "color_large": (lambda c, x: c.split(1 << 40), ConfigError, "color"),
    "key": (lambda c, x: c.split(0, 0.5), ConfigError, "key.*0.5"),
}  # fmt: skip

SINGLE = ("out_read_only", "out_shape", "dtype", "op", "root", "algorithm", "timeout", "big_endian",
          "ragged", "counts_own", "color")  # fmt: skip


@pytest.mark.parametrize("started", [False, True], ids=["blocking", "started"])
@pytest.mark.parametrize("what", BAD)
def test_refused_by_all(comm: Communicator, what: str, started: bool) -> None:
    call, kind, words = BAD[what]
    target: Any = Started(comm) if started else comm
    with pytest.raises(kind, match=words):
        call(target, X)
    assert comm.allreduce(1.0) == comm.size


class Started:
    """A communicator whose collectives are the started ones."""

    def __init__(self, comm: Communicator) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, f"i{name}", None) or getattr(self.comm, name)


@pytest.mark.parametrize("what", SINGLE)
def test_refused_on_one_rank_before_others_know_the_call(comm: Communicator, what: str) -> None:
    """The others wait in the agreement of a new recipe: all can go on afterwards."""
    if comm.size == 1:
        return
    call, kind, words = BAD[what]
    for odd in (0, comm.size - 1):
        if comm.rank == odd:
            with pytest.raises(kind, match=words):
                call(comm, X)
        else:
            fresh = np.zeros(len(what) * 100 + 7 * odd + 1)
            start = time.monotonic()
            with pytest.raises(MismatchError, match=f"rank {odd} refused.*{kind.__name__}"):
                comm.allreduce(fresh)
            assert time.monotonic() - start < 10
        assert comm.allreduce(1.0) == comm.size


@pytest.mark.parametrize("name", ["allreduce", "iallreduce", "plan"])
def test_refused_on_one_rank_in_a_known_call(
    comm_with: Callable[..., Communicator], name: str
) -> None:
    """The others are in the call already: they fail soon and know why, for good."""
    comm = comm_with()
    if comm.size == 1:
        return
    comm.allreduce(X)
    odd = comm.size - 1
    start = time.monotonic()
    if comm.rank == odd:
        with pytest.raises(BufferMismatch, match="read-only"):
            comm.allreduce(X, out=read_only(X))
        with pytest.raises(hpcoll.HpcollError):  # the others have given up
            comm.allreduce(X, timeout=1)
    else:
        call = {
            "allreduce": lambda: comm.allreduce(X),
            "iallreduce": lambda: comm.iallreduce(X).wait(),
            "plan": lambda: comm.plan("allreduce", X)(),
        }[name]
        with pytest.raises(MismatchError, match=f"rank {odd} refused.*read-only"):
            call()
    assert time.monotonic() - start < 15


def test_late_refusal_after_counts_were_exchanged(comm_with: Callable[..., Communicator]) -> None:
    comm = comm_with()
    if comm.size == 1:
        return
    odd = comm.size - 1
    out = np.zeros(3) if comm.rank == odd else None
    kind = BufferMismatch if comm.rank == odd else MismatchError
    with pytest.raises(kind, match=r"\(3,\)"):
        comm.allgatherv(np.zeros(2), out=out)


def test_same_algorithm_in_other_words(comm: Communicator) -> None:
    """Ranks that spell one algorithm differently find the same recipe."""
    spellings = ("ring", "allreduce/ring")
    for turn in range(4):
        spec = spellings[(comm.rank * turn + turn) % 2]
        assert comm.allreduce(X[0] + 1, algorithm=spec) == comm.size
        spec = ("auto", None)[(comm.rank * turn) % 2]
        assert comm.allreduce(X[0] + 1, algorithm=spec, timeout=20) == comm.size
