"""Kernels for operators that are Python functions, compiled by numba as loops over elements.

They are not cached on disk: the function may come from anywhere.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cfunc as _cfunc
from numba import njit
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.misc.special import literal_unroll
from numba.np import numpy_support
from numba.np.numpy_support import carray

from hpcoll.errors import ConfigError
from hpcoll.kernels.dtypes import HALVES, check_supported, dtype_name
from hpcoll.kernels.halves import half_format, narrow, widen
from hpcoll.kernels.intrinsics import alloca64, as_pointer, load64
from hpcoll.schedule.ops import Op

cfunc: Any = _cfunc
SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)

_lock = threading.RLock()
_kernels: dict[tuple[int, int, str], tuple[Any, Any]] = {}


def user_address(op: Op, dtype: np.dtype[Any]) -> int:
    """Return the address of the kernel of a user operator, compiled on first use.

    The function is compiled with NumPy's rules for errors: a division by zero gives
    infinity, NaN, or 0 for integers. It must not raise: nobody would see it.

    Raises
    ------
    BufferMismatch
        If the operator doesn't go with the dtype.
    ConfigError
        If numba can't compile the function, or its result has the wrong shape.
    """
    check_supported(op, dtype)
    name = dtype_name(dtype)
    key = (id(op.function), op.width, name)
    with _lock:
        if key not in _kernels:
            # The function is kept, so that no other one gets its id.
            _kernels[key] = (op.function, _compile(op, name, np.dtype(dtype)))
        return int(_kernels[key][1].address)


def _compile(op: Op, name: str, dtype: np.dtype[Any]) -> Any:
    element = types.float32 if name in HALVES else numpy_support.from_dtype(dtype)
    operand = element if op.width == 1 else types.Array(element, 1, "C")
    try:
        function: Any = op.function
        if not isinstance(function, Dispatcher):
            function = njit(error_model="numpy")(function)
        function.compile((operand, operand))
        _check_result(op, function.overloads[(operand, operand)].signature.return_type)
        if op.width > 1:
            kernel = _groups(function, dtype.type, op.width, dtype.itemsize)
        elif name in HALVES:
            kernel = _halves(function, half_format(name))
        else:
            kernel = _elements(function, dtype.type, element, dtype.itemsize)
        return cfunc(SIGNATURE, nopython=True, error_model="numpy")(kernel)
    except ConfigError:
        raise
    except Exception as error:  # numba lets almost anything out
        raise ConfigError(
            f"numba can't compile op {op.name!r} for {name}: {_reason(error)}"
        ) from error


def _check_result(op: Op, result: Any) -> None:
    numbers = (types.Number, types.Boolean)
    if op.width == 1:
        if not isinstance(result, numbers):
            raise ConfigError(f"op {op.name!r} must return a number, not {result}")
        return
    parts = list(getattr(result, "types", ()))
    if len(parts) != op.width or not all(isinstance(part, numbers) for part in parts):
        raise ConfigError(f"op {op.name!r} must return a tuple of {op.width} numbers, not {result}")


def _reason(error: Exception) -> str:
    """Return the first line of numba's message that says something of the function."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    return lines[0] if lines else type(error).__name__


def _elements(function: Any, scalar: Any, element: Any, size: int) -> Callable[..., None]:
    def user_fold(dst: int, table: int, noperands: int, nbytes: int) -> None:
        count = nbytes // size
        result = carray(_void_pointer(dst), count, scalar)
        first = carray(_void_pointer(load64(table)), count, scalar)
        for i in range(count):
            value = first[i]
            for k in range(1, noperands):
                operand = carray(_void_pointer(load64(table + 8 * k)), count, scalar)
                value = element(function(value, operand[i]))
            result[i] = value

    return user_fold


def _halves(function: Any, form: str) -> Callable[..., None]:
    bits, single = np.uint16, types.float32

    def user_fold_halves(dst: int, table: int, noperands: int, nbytes: int) -> None:
        count = nbytes // 2
        result = carray(_void_pointer(dst), count, bits)
        first = carray(_void_pointer(load64(table)), count, bits)
        for i in range(count):
            value = _widen(form, first[i])
            for k in range(1, noperands):
                operand = carray(_void_pointer(load64(table + 8 * k)), count, bits)
                value = single(function(value, _widen(form, operand[i])))
            result[i] = _narrow(form, value)

    return user_fold_halves


def _groups(function: Any, scalar: Any, width: int, size: int) -> Callable[..., None]:
    words = (width * size + 7) // 8

    def user_fold_groups(dst: int, table: int, noperands: int, nbytes: int) -> None:
        # Held apart from `dst`, which a later operand may be.
        total = carray(_void_pointer(alloca64(words)), width, scalar)
        for start in range(0, nbytes, width * size):
            first = carray(_void_pointer(load64(table) + start), width, scalar)
            for j in range(width):
                total[j] = first[j]
            for k in range(1, noperands):
                operand = carray(_void_pointer(load64(table + 8 * k) + start), width, scalar)
                j = 0
                for value in literal_unroll(function(total, operand)):
                    total[j] = value
                    j += 1  # noqa: SIM113 (numba unrolls this loop and has no enumerate there)
            result = carray(_void_pointer(dst + start), width, scalar)
            for j in range(width):
                result[j] = total[j]

    return user_fold_groups


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(prefer_literal=True)(function)


@_intrinsic
def _void_pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return as_pointer(builder, args[0], ir.IntType(8))

    return types.voidptr(types.int64), codegen


@_intrinsic
def _widen(typingctx: Any, form: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = builder.bitcast(args[1], ir.VectorType(ir.IntType(16), 1))
        floats = widen(builder, vector, form.literal_value)
        return builder.extract_element(floats, ir.IntType(32)(0))

    return types.float32(form, types.uint16), codegen


@_intrinsic
def _narrow(typingctx: Any, form: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = builder.bitcast(args[1], ir.VectorType(ir.FloatType(), 1))
        bits = narrow(builder, vector, form.literal_value)
        return builder.extract_element(bits, ir.IntType(32)(0))

    return types.uint16(form, types.float32), codegen
