"""Every dtype and operator, and the rules for NaN, wrapping, rounding and averages."""

from __future__ import annotations

import numpy as np
import pytest
from harness import MODES, NAMES, SIZE, Case, assert_same, check, serving

import hpcoll
from hpcoll.kernels import reference
from hpcoll.kernels.dtypes import DTYPES, check_supported
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.ops import BUILTIN, SUM, resolve_op

pytestmark = pytest.mark.mpi
REDUCING = [
    n for n in NAMES if COLLECTIVES.get(n.removesuffix("v"), COLLECTIVES["barrier"]).reduces
]


def accepts(op: str, dtype: str) -> bool:
    """Whether an operator goes with a dtype."""
    try:
        check_supported(resolve_op(op), DTYPES[dtype])
    except hpcoll.BufferMismatch:
        return False
    return True


PAIRS = [(op, dtype) for op in BUILTIN for dtype in DTYPES if accepts(op, dtype)]
HALVES = ["float16", "bfloat16"]


def test_refused_pairs(comm: hpcoll.Communicator) -> None:
    for op in BUILTIN:
        for dtype in DTYPES:
            if (op, dtype) not in PAIRS:
                with pytest.raises(hpcoll.BufferMismatch, match=dtype):
                    comm.allreduce(np.ones(3, DTYPES[dtype]), op=op)


@pytest.mark.parametrize(("op", "dtype"), PAIRS if SIZE <= 3 else PAIRS[SIZE % 3 :: 3])
def test_reductions_a31_a32(comm: hpcoll.Communicator, op: str, dtype: str) -> None:
    specs = serving("allreduce", op, dtype)
    if SIZE > 3:  # one algorithm for each pair, in turn
        specs = specs[PAIRS.index((op, dtype)) % len(specs) :][:1]
    for seed, spec in enumerate(specs):
        odd = seed % 2 == 1
        check(comm, Case("allreduce", spec, 5 + 28 * odd, dtype=dtype, op=op, seed=seed,
                         in_place=odd, mode="started"))  # fmt: skip
    for seed, name in enumerate(("reduce", "scan", "exscan", "reduce_scatter")):
        check(comm, Case(name, None, 3, dtype=dtype, op=op, seed=seed, mode="started"))


LARGER = [("sum", "int16"), ("max", "float32"), ("band", "uint8"), ("prod", "complex128"),
          ("sum", "bfloat16")]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype"), LARGER)
def test_larger(comm: hpcoll.Communicator, op: str, dtype: str) -> None:
    for name in ("allreduce", "reduce_scatter", "scan"):
        for spec in serving(name, op, dtype):
            check(comm, Case(name, spec, 4099, dtype=dtype, op=op))


@pytest.mark.parametrize("dtype", DTYPES)
def test_moved_a25(comm: hpcoll.Communicator, dtype: str) -> None:
    for seed, name in enumerate(("broadcast", "allgather", "gather", "scatter", "alltoall")):
        for spec in serving(name, dtype=dtype):
            check(comm, Case(name, spec, 3, (2,), dtype=dtype, seed=seed, mode=MODES[seed % 3]))


@pytest.mark.parametrize("code", "bBhHiIlLqQ")
def test_c_integers_a31(comm: hpcoll.Communicator, code: str) -> None:
    x = np.arange(5, dtype=code) + np.dtype(code).type(comm.rank)
    want = np.arange(5, dtype=code) * comm.size + sum(range(comm.size))
    assert np.array_equal(comm.allreduce(x), want)
    assert comm.allreduce(x).dtype == x.dtype


@pytest.mark.parametrize("code", ["<f8", "=f8", "<c16", "<i4"])
def test_native_order_spelt_out_a32(comm: hpcoll.Communicator, code: str) -> None:
    x = np.array([1, 2, 3]).astype(np.dtype(code))
    assert np.array_equal(comm.broadcast(x), x)
    assert np.array_equal(comm.allreduce(x), x * comm.size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_nan_from_any_rank_a22(comm: hpcoll.Communicator, op: str, dtype: str) -> None:
    for spec in serving("allreduce", op, dtype):
        for place in range(comm.size):
            x = np.arange(1, 40).astype(DTYPES[dtype]) + DTYPES[dtype].type(comm.rank)
            x[7] = np.nan if comm.rank == place else comm.rank
            got = comm.allreduce(x, op=op, algorithm=spec)
            assert np.flatnonzero(np.isnan(got)).tolist() == [7]


def test_small_minimum_a02(comm: hpcoll.Communicator) -> None:
    for spec in serving("allreduce", "min"):
        x = np.array([(10.0, -300.0, -150.0)[comm.rank % 3]])
        comm.allreduce(x, out=x, op="min", algorithm=spec)
        assert x[0] == min((10.0, -300.0, -150.0)[: comm.size])


def test_scans_start_from_nothing_a16(comm: hpcoll.Communicator) -> None:
    low, high = np.array([5.0 + 2 * comm.rank]), np.array([-5.0 - 2 * comm.rank])
    for spec in serving("scan", "min"):
        assert comm.scan(low, op="min", algorithm=spec) == [5]
        assert comm.scan(high, op="max", algorithm=spec) == [-5]
    for spec in serving("exscan", "min"):
        for x, op, want in ((low, "min", 5), (high, "max", -5)):
            out = np.array([42.0])
            comm.exscan(x, out=out, op=op, algorithm=spec)
            assert out == [want if comm.rank else 42]
    start = comm.exscan(low, op="min")
    assert start == [5 if comm.rank else np.inf]


def test_integers_wrap_a20(comm: hpcoll.Communicator) -> None:
    for spec in serving("allreduce", "sum", "int16"):
        for n in (1, 8, 33):
            x = np.full(n, 16384, np.int16)
            want = reference.fold(SUM, [x] * comm.size)
            assert_same(comm.allreduce(x, algorithm=spec), want, spec)


def test_average(comm: hpcoll.Communicator) -> None:
    for n in (1, 31, 33, 1003):  # a11
        x = np.arange(n, dtype=np.float32) + comm.rank
        out = np.full(n, np.nan, np.float32)
        comm.allreduce(x, out=out, op="avg")
        assert_same(out, np.arange(n, dtype=np.float32) + np.float32((comm.size - 1) / 2), "avg")
    prefix = comm.scan(np.float64(2 * comm.rank), op="avg")
    assert prefix == comm.rank
    for name in ("allreduce", "reduce"):  # a24
        with pytest.raises(hpcoll.BufferMismatch, match="int32"):
            getattr(comm, name)(np.ones(4, np.int32), op="avg")


@pytest.mark.parametrize("op", ["land", "lor", "lxor"])
def test_logical_gives_truth_of_one_operand(comm: hpcoll.Communicator, op: str) -> None:
    x = np.array([0, 5, 7], np.int32)
    for name in ("allreduce", "scan"):
        for spec in serving(name, op, "int32"):
            got = getattr(comm, name)(x, op=op, algorithm=spec)
            assert set(got.tolist()) <= {0, 1}, f"{name} {spec}: {got}"


def test_complex_has_no_order_a29(comm: hpcoll.Communicator) -> None:
    for dtype in ("complex64", "complex128"):
        for op in ("min", "max"):
            with pytest.raises(hpcoll.BufferMismatch, match="no order"):
                comm.allreduce(np.ones(2, dtype), op=op)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_round_once_a_fold_a26(comm: hpcoll.Communicator, dtype: str) -> None:
    """One fold of all operands loses nothing that float32 holds; a fold a hop may."""
    big = 2048 if dtype == "float16" else 256
    x = np.array([big if comm.rank == 0 else 1], DTYPES[dtype])
    xs = [np.array([big if r == 0 else 1], DTYPES[dtype]) for r in range(comm.size)]
    got = comm.allreduce(x, algorithm="one_shot")
    assert_same(got, reference.fold(SUM, xs), "one_shot")
    exact = float(big + comm.size - 1)
    for spec in serving("allreduce", "sum", dtype):
        value = float(comm.allreduce(x, algorithm=spec)[0])
        assert abs(value - exact) <= comm.size * exact * float(np.finfo(np.float16).eps) * (
            1 if dtype == "float16" else 8
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_same_bits_everywhere_a17(comm: hpcoll.Communicator, dtype: str) -> None:
    random = np.random.default_rng([5, comm.rank])
    noise = (random.standard_normal(4097) * 10.0 ** random.integers(-3, 4, 4097)).astype(
        DTYPES[dtype]
    )
    noise[:4] = [(1e8, 1, -1e8, 1)[(comm.rank + k) % 4] if "64" in dtype else 1 for k in range(4)]
    for spec in serving("allreduce", "sum", dtype):
        got = comm.allreduce(noise, algorithm=spec).view(np.uint8)
        assert np.array_equal(comm.broadcast(got), got), f"{spec}: bits differ from rank 0's"
        again = comm.allreduce(noise, algorithm=spec).view(np.uint8)
        assert np.array_equal(again, got), f"{spec}: bits differ from the first run's"


def matrix_product(a, b):  # type: ignore[no-untyped-def]
    return (
        a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3],
    )  # fmt: skip


PRODUCT = hpcoll.op(matrix_product, commute=False, width=4)


@pytest.mark.parametrize("name", ["allreduce", "reduce", "scan", "exscan", "reduce_scatter"])
def test_rank_order_is_kept_a14(comm: hpcoll.Communicator, name: str) -> None:
    specs = serving(name, PRODUCT, "int64")
    assert specs, f"no algorithm of {name} keeps rank order"
    rows = 4 * SIZE if name == "reduce_scatter" else 4 * 9
    factors = [np.tile([r + 1, 1, 1, 0], rows // 4) for r in range(SIZE)]
    for spec in (None, *specs):
        for root in range(SIZE if name == "reduce" else 1):
            options = {"root": root} if name == "reduce" else {}
            for start in (name, f"i{name}"):
                got = getattr(comm, start)(
                    factors[comm.rank], op=PRODUCT, algorithm=spec, **options
                )
                got = got.wait() if start != name else got
                used = {"scan": comm.rank + 1, "exscan": comm.rank}.get(name, SIZE)
                if used == 0 or (name == "reduce" and comm.rank != root):
                    assert got is None
                    continue
                want = reference.fold(PRODUCT, factors[:used])
                assert np.array_equal(got, want[: len(got)]), f"{spec} root {root}"
    if SIZE == 4 and name == "allreduce":
        assert want[:4].tolist() == [43, 10, 30, 7]


def test_unordered_algorithm_is_refused(comm: hpcoll.Communicator) -> None:
    if SIZE > 2:
        with pytest.raises(hpcoll.RegistryError, match="rank order"):
            comm.allreduce(np.arange(4), op=PRODUCT, algorithm="ring")
    with pytest.raises(hpcoll.BufferMismatch, match="width 4"):
        comm.allreduce(np.arange(6), op=PRODUCT)


def test_user_operator(comm: hpcoll.Communicator) -> None:
    larger = hpcoll.op(lambda a, b: a if abs(a) > abs(b) else b, commute=True, identity=0)
    for dtype in ("float64", "int32", "float16"):
        x = np.array([(-1) ** comm.rank * (comm.rank + 1), 1]).astype(dtype)
        want = [(-1) ** (SIZE - 1) * SIZE, 1]
        for spec in serving("allreduce", larger, dtype):
            assert comm.allreduce(x, op=larger, algorithm=spec).tolist() == want
    if comm.rank == 0:
        assert comm.exscan(x, op=larger).tolist() == [0, 0]
    else:
        comm.exscan(x, op=larger)
