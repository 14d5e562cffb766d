"""The compiled kernels against NumPy, bit by bit."""

import ctypes
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cfunc, njit, types

from hpcoll.errors import BufferMismatch, ConfigError
from hpcoll.kernels import compile as compiling_module
from hpcoll.kernels import cpu, intrinsics, reference
from hpcoll.kernels.copies import stream
from hpcoll.kernels.dtypes import DTYPES, check_supported, identity
from hpcoll.schedule.ops import BUILTIN, make_op

ROOT = Path(__file__).parents[2]
KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
LENGTHS = (0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000)
GUARD = 64


def is_supported(op, dtype):
    try:
        check_supported(op, dtype)
    except BufferMismatch:
        return False
    return True


PAIRS = [(o, d) for o in BUILTIN.values() for d in DTYPES.values() if is_supported(o, d)]


def name_of(value):
    return getattr(value, "name", None)


def random_array(rng, dtype, length):
    if dtype.kind == "b":
        return rng.integers(0, 2, length).astype(bool)
    if dtype.kind in "iu":
        return np.frombuffer(rng.bytes(length * dtype.itemsize), dtype)
    count = length * (2 if dtype.kind == "c" else 1)
    values = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 5, count)
    special = rng.choice([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504, 6e-8], count)
    values = np.where(rng.random(count) < 0.2, special, values)
    if dtype.kind == "c":
        return values.astype(dtype.type(0).real.dtype).view(dtype)
    return values.astype(dtype)


def place(array, offset):
    """Return a copy that starts `offset` elements into its memory, and all of it."""
    size = array.dtype.itemsize
    memory = np.full(array.nbytes + 2 * GUARD * size, 0xA5, np.uint8)
    start = (GUARD + offset) * size
    copy = memory[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy, memory, start


def call(address, target, operands, number=None):
    table = np.array([x.ctypes.data for x in operands], np.int64)
    KERNEL(address)(target.ctypes.data, table.ctypes.data, number or len(operands), target.nbytes)


def run(op, arrays, offset=0, into=None):
    """Fold with the compiled kernel, into an operand or a place of its own."""
    placed = [place(array, (offset + k) % 5) for k, array in enumerate(arrays)]
    target = placed[into] if into is not None else place(np.zeros_like(arrays[0]), offset)
    result, memory, start = target
    call(cpu.fold_address(op, arrays[0].dtype), result, [p[0] for p in placed])
    assert (memory[:start] == 0xA5).all()
    assert (memory[start + result.nbytes :] == 0xA5).all()
    for k, (operand, _, _) in enumerate(placed):
        if k != into:
            assert operand.tobytes() == arrays[k].tobytes()
    return result


def assert_same(got, expected, zeros_equal=False):
    """Compare bits, but for the payload of a NaN and, on request, the sign of a zero."""
    assert got.dtype == expected.dtype
    if got.tobytes() == expected.tobytes():
        return
    assert got.dtype.kind not in "iub"
    if got.dtype.kind == "c":
        got, expected = (x.view(x.real.dtype) for x in (got, expected))
    bits = np.dtype(f"u{got.dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        same = (got.view(bits) == expected.view(bits)) | (np.isnan(got) & np.isnan(expected))
        if zeros_equal:
            same |= got == expected
    assert same.all(), (got[~same][:4], expected[~same][:4])


def check(op, arrays, offset=0, into=None):
    # NumPy says nothing of the sign of min(+0, -0), and differs between processors.
    got = run(op, arrays, offset, into)
    assert_same(got, reference.fold(op, arrays), zeros_equal=op.name in ("min", "max"))
    return got


@pytest.mark.parametrize(("op", "dtype"), PAIRS, ids=name_of)
def test_fold_equals_numpy(op, dtype):
    rng = np.random.default_rng(7)
    for case, length in enumerate(LENGTHS):
        pool = [random_array(rng, dtype, length) for _ in range(9)]
        for count in range(1, 10):
            into = (None, 0, count // 2, count - 1)[(case + count) % 4]
            check(op, pool[:count], offset=(case + count) % 4, into=into)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(PAIRS),
    st.integers(1, 9),
    st.integers(0, 700),
    st.integers(0, 7),
    st.none() | st.integers(0, 8),
    st.integers(0, 2**32),
)
def test_fold_of_anything(pair, count, length, offset, into, seed):
    rng = np.random.default_rng(seed)
    arrays = [random_array(rng, pair[1], length) for _ in range(count)]
    check(pair[0], arrays, offset, None if into is None else into % count)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind not in "iub"], ids=name_of)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 1000])
def test_divide_equals_numpy(dtype, divisor):
    rng = np.random.default_rng(divisor)
    for length in LENGTHS:
        source = random_array(rng, dtype, length)
        for in_place in (False, True):
            result, memory, start = place(source, 1)
            operand = result if in_place else source
            call(cpu.divide_address(dtype), result, [operand], divisor)
            assert_same(result, reference.divide(source, divisor))
            assert (memory[:start] == 0xA5).all()
            assert (memory[start + result.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float16soft"])
def test_every_half_is_read_and_rounded_as_numpy_does(name):
    dtype = DTYPES[name.removesuffix("soft")]
    address = cpu._address(f"sum/{name}", cpu._make_fold)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    result = np.empty_like(every)
    call(address, result, [every])
    assert_same(result, every)
    for shift in (1, 77, 1024, 20000):
        other = np.roll(every, shift)
        call(address, result, [every, other, every])
        assert_same(result, reference.fold(BUILTIN["sum"], [every, other, every]))


def test_halves_round_once():
    # 1 + 3 * 2^-11: each addend alone is lost, or rounded away to even.
    values = [np.array([x], np.float16) for x in (1, 2**-11, 2**-11, 2**-11)]
    assert run(BUILTIN["sum"], values)[0] == np.float16(1 + 2**-9 - 2**-11) != 1
    stepwise = values[0]
    for value in values[1:]:
        stepwise = stepwise + value
    assert stepwise[0] == 1


@pytest.mark.parametrize("op", BUILTIN.values(), ids=name_of)
@pytest.mark.parametrize("count", [256, 257])
def test_bool_bytes_are_0_or_1(op, count):
    if op.name == "avg":
        return
    result = run(op, [np.ones(70, bool)] * count).view(np.uint8)
    expected = count % 2 if "xor" in op.name else 1
    assert (result == expected).all()
    odd = np.array([0, 1, 2, 128, 255] * 9, np.uint8).view(bool)
    result = np.zeros(45, np.uint8)
    call(cpu.fold_address(op, np.dtype(bool)), result, [odd])
    assert (result == (odd.view(np.uint8) != 0)).all()


@pytest.mark.parametrize("extreme", [BUILTIN["min"], BUILTIN["max"]], ids=name_of)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_nan_in_any_operand_shows(extreme, name):
    for where in range(3):
        arrays = [np.arange(40).astype(DTYPES[name]) for _ in range(3)]
        arrays[where][::2] = np.nan
        assert np.isnan(run(extreme, arrays)[::2]).all()
        assert not np.isnan(run(extreme, arrays)[1::2].astype(np.float32)).any()


@pytest.mark.parametrize(("op", "dtype"), PAIRS, ids=name_of)
def test_identity_changes_nothing(op, dtype):
    x = random_array(np.random.default_rng(3), dtype, 99)
    if dtype.kind == "c" and op.name == "prod":
        x = np.arange(1, 100).astype(dtype)
    neutral = np.full(99, identity(op, dtype), dtype)
    if op.name in ("land", "lor", "lxor"):
        x = reference.fold(op, [x])
    got = run(op, [neutral, x])
    finite = ~np.isnan(x)
    assert (got[finite] == x[finite]).all()


@pytest.mark.parametrize(
    ("op", "dtype", "right"),
    [
        ("avg", "int32", "floating"),
        ("avg", "bool", "floating"),
        ("min", "complex64", "real dtype"),
        ("max", "complex128", "real dtype"),
        ("band", "float32", "'land'"),
        ("bor", "bfloat16", "'lor'"),
        ("bxor", "complex64", "'lxor'"),
        ("sum", "longdouble", "float64"),
        ("sum", "O", "Python objects"),
        ("sum", ">f4", "astype('float32')"),
        ("sum", "M8[s]", "float64"),
        ("sum", "U3", "float64"),
        ("sum", "V4", "float64"),
        ("sum", [("a", "f4")], "one field"),
    ],
)
def test_what_cannot_be_combined_is_refused(op, dtype, right):
    dtype = DTYPES.get(dtype) if isinstance(dtype, str) and dtype in DTYPES else np.dtype(dtype)
    for function in (check_supported, cpu.fold_address):
        with pytest.raises(BufferMismatch) as caught:
            function(BUILTIN[op], dtype)
        text = str(caught.value)
        assert isinstance(caught.value, TypeError)
        assert repr(op) in text
        assert (dtype.name if dtype.isbuiltin else str(dtype)) in text
        assert right in text


def test_a_reference_fold_needs_equal_operands():
    with pytest.raises(BufferMismatch, match="differ"):
        reference.fold(BUILTIN["sum"], [np.zeros(2), np.zeros(3)])


def farthest(a, b):
    return a if abs(a) >= abs(b) else b


def matrix_product(a, b):
    return (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
    )


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int8", "uint64", "complex64"])
def test_user_op(name):
    op = make_op(farthest, commute=True, identity=0)
    rng = np.random.default_rng(1)
    for count in (1, 2, 5):
        arrays = [(rng.standard_normal(33) * 50).astype(DTYPES[name]) for _ in range(count)]
        for into in (None, 0, count - 1):
            check(op, arrays, 1, into)
    assert identity(op, DTYPES[name]) == 0


def test_user_op_on_bool():
    op = make_op(lambda a, b: a and not b, commute=False, name="without")
    arrays = [np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)]
    assert check(op, arrays).tolist() == [False, True, False, False]


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_user_op_of_width_keeps_order_and_aliases(dtype):
    op = make_op(matrix_product, commute=False, width=4)
    rng = np.random.default_rng(2)
    arrays = [rng.integers(-3, 4, 4 * 11).astype(dtype) for _ in range(4)]
    for into in (None, 0, 2, 3):
        got = check(op, arrays, 1, into)
    expected = np.eye(2)
    for array in arrays:
        expected = expected @ array.reshape(11, 2, 2)
    assert (got.reshape(11, 2, 2) == expected).all()
    with pytest.raises(BufferMismatch, match="multiple of its width 4"):
        reference.fold(op, [np.zeros(6), np.zeros(6)])
    with pytest.raises(BufferMismatch, match="'matrix_product' of width 4 can't combine float16"):
        cpu.fold_address(op, np.dtype(np.float16))


def test_user_ops_of_one_code_and_other_constants_differ():
    def scaled(factor):
        return make_op(lambda a, b: a + factor * b, commute=False, name="scaled")

    for factor in (2.0, 3.0):
        got = check(scaled(factor), [np.ones(5), np.ones(5)])
        assert (got == 1 + factor).all()


def test_user_op_divides_by_zero_as_numpy_does():
    op = make_op(lambda a, b: a / b, commute=False, name="ratio")
    assert run(op, [np.ones(3), np.array([0.0, 2.0, -0.0])]).tolist() == [np.inf, 0.5, -np.inf]


@pytest.mark.parametrize(
    ("function", "width", "message"),
    [
        (lambda a, b: {}[a].missing + b, 1, "numba can't compile op '<lambda>' for float32: Type"),
        (lambda a, b: nothing(a, b), 1, "'nothing' is not defined"),  # noqa: F821
        (max, 1, "numba can't compile op 'max'"),
        (lambda a, b: (a, b), 1, "must return a number"),
        (lambda a, b: (a[0], b[0]), 3, "must return a tuple of 3 numbers"),
    ],
)
def test_user_op_that_cannot_be_compiled(function, width, message):
    op = make_op(function, commute=True, width=width)
    with pytest.raises(ConfigError) as caught:
        cpu.fold_address(op, np.dtype(np.float32))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CALL3, CALL_VOID2 = intrinsics.make_call(3), intrinsics.make_call_void(2)


@cfunc(types.int32(types.int64, types.int64, types.int64))
def negated_sum(a, b, c):
    return -(a + b + c)


@cfunc(types.void(types.int64, types.int64))
def poke(address, value):
    intrinsics.store64(address, value)


@njit
def use_intrinsics(function, procedure):
    words = intrinsics.alloca64(3)
    intrinsics.store_release(words, 77)
    CALL_VOID2(procedure, words + 8, -5)
    intrinsics.memcpy(words + 16, words + 8, 8)
    before = intrinsics.now_ns()
    intrinsics.pause()
    intrinsics.sched_yield()
    intrinsics.usleep(1000)
    loaded = (intrinsics.load_acquire(words), intrinsics.load64(words + 16))
    return CALL3(function, 1, 2, 3), loaded, before, intrinsics.now_ns()


def test_intrinsics():
    start = time.monotonic_ns()
    result, loaded, before, after = use_intrinsics(negated_sum.address, poke.address)
    assert (result, loaded) == (-6, (77, -5))
    assert start < before < before + 1_000_000 <= after <= time.monotonic_ns()


def python(code, *arguments, **environment):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_another_process_finds_the_kernel_in_the_cache(tmp_path):
    code = """
        import numpy as np
        from hpcoll.kernels import cpu
        from hpcoll.schedule.ops import SUM, PROD
        for op in (SUM, PROD):
            cpu.fold_address(op, np.dtype(np.float32))
        print(*(k.cache_hits for k in cpu._kernels.values()))
    """
    output = [python(code, NUMBA_CACHE_DIR=str(tmp_path)).communicate()[0] for _ in range(2)]
    assert output == ["0 0\n", "1 1\n"]


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 70), st.integers(0, 70))
def test_streams_copy_every_byte_and_no_other(nbytes, source_at, target_at):
    source = np.random.default_rng([nbytes, source_at]).integers(1, 255, 500, np.uint8)
    target = np.zeros(500, np.uint8)
    stream(target.ctypes.data + target_at, source.ctypes.data + source_at, nbytes)
    want = np.zeros(500, np.uint8)
    want[target_at : target_at + nbytes] = source[source_at : source_at + nbytes]
    assert (target == want).all()


def test_one_process_compiles_while_others_wait(tmp_path):
    (tmp_path / "module.py").write_text("def function():\n    pass\n")
    code = """
        import os, sys, time
        sys.path.insert(0, sys.argv[1])
        import module
        from hpcoll.kernels.compile import compiling
        def log(what):
            with open(os.path.join(sys.argv[1], "log"), "a") as file:
                print(what, os.getpid(), file=file)
        with compiling("engine", module.function), compiling("nested", module.function):
            log("in")
            time.sleep(0.3)
            log("out")
    """
    cache = str(tmp_path / "cache")
    processes = [python(code, str(tmp_path), NUMBA_CACHE_DIR=cache) for _ in range(3)]
    assert [p.wait() for p in processes] == [0, 0, 0]
    log = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [what for what, _ in log[:2]] == ["in", "out"]
    assert log[0][1] == log[1][1]
    assert len(log) == 6


def test_a_change_in_an_imported_module_is_compiled_again(tmp_path):
    (tmp_path / "outer.py").write_text(
        "from numba import njit\n"
        "from inner import value\n"
        "@njit(cache=True)\n"
        "def answer():\n"
        "    return value()\n"
    )
    code = """
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        import outer
        from hpcoll.kernels.compile import compiling, sources_stamp
        with compiling("answer", outer.answer, sources_stamp(Path(sys.argv[1]))):
            print(outer.answer())
    """
    seen = []
    for value in ("1", "1", "22"):
        (tmp_path / "inner.py").write_text(
            f"from numba import njit\n@njit\ndef value():\n    return {value}\n"
        )
        process = python(code, str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        seen.append(process.communicate()[0].strip())
    assert seen == ["1", "1", "22"]


def test_compiling_goes_on_without_locks_and_without_a_cache(monkeypatch, tmp_path):
    def refuse(*arguments):
        raise OSError("no locks here")

    monkeypatch.setattr(compiling_module, "cache_folder", lambda function: tmp_path)
    monkeypatch.setattr(compiling_module.fcntl, "flock", refuse)
    with compiling_module.compiling("a", run):
        pass
    assert len(list(tmp_path.glob("*.done"))) == 1
    with pytest.raises(ValueError, match="inside"), compiling_module.compiling("b", run):
        raise ValueError("inside")
    assert len(list(tmp_path.glob("*.done"))) == 1
    monkeypatch.setattr(compiling_module, "cache_folder", lambda function: tmp_path / "absent")
    with compiling_module.compiling("c", run):
        pass
    monkeypatch.setattr(compiling_module, "cache_folder", lambda function: None)
    monkeypatch.setattr(cpu, "cache_folder", lambda function: None)
    with compiling_module.compiling("d", run):
        pass
    assert cpu._compile("sum/float64", cpu._make_fold).address
