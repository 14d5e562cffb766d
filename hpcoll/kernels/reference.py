"""What a fold is, in NumPy: slow, readable, and the oracle of the compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from hpcoll.errors import BufferMismatch
from hpcoll.kernels.dtypes import HALVES, check_supported
from hpcoll.schedule.ops import AVG, Op

Array = np.ndarray[Any, np.dtype[Any]]

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
}


def fold(op: Op, operands: Sequence[Array]) -> Array:
    """Combine arrays element by element, from left to right.

    float16 and bfloat16 are combined in float32 and rounded once, at the end.
    Integers wrap. ``min`` and ``max`` give NaN where any operand has one. Logical
    operators give 0 or 1, of one operand as well. ``avg`` adds: `divide` is its
    second half.

    Parameters
    ----------
    op : Op
        What combines two elements.
    operands : sequence of ndarray
        At least one, all of one shape and dtype.

    Returns
    -------
    ndarray
        A new array of that shape and dtype.

    Raises
    ------
    BufferMismatch
        If `op` doesn't go with the dtype, or the operands differ in dtype or shape.
    """
    first = operands[0]
    check_supported(op, first.dtype)
    if any(x.dtype != first.dtype or x.shape != first.shape for x in operands):
        raise BufferMismatch(f"op {op.name!r}: operands differ in dtype or shape")
    wide = np.dtype(np.float32) if first.dtype.name in HALVES else first.dtype
    values = [x.astype(wide) for x in operands]
    with np.errstate(all="ignore"):
        if op.function is not None:
            return _user(op, values).astype(first.dtype)
        if op.name in ("land", "lor", "lxor") or first.dtype.kind == "b":
            values = [x != 0 for x in values]
        combine: Any = _UFUNCS[op.name]
        if op.name == "prod" and wide.kind == "c":
            combine = _complex_product
        return np.asarray(reduce(combine, values)).astype(first.dtype)


def divide(array: Array, divisor: int) -> Array:
    """Divide a sum by the number of its terms: the second half of ``avg``.

    Parameters
    ----------
    array : ndarray
        Floating or complex.
    divisor : int
        At least 1.

    Returns
    -------
    ndarray
        Of the same dtype; float16 and bfloat16 are divided in float32 and rounded
        once, complex numbers part by part.
    """
    check_supported(AVG, array.dtype)
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c":
            result = np.empty_like(array)
            result.real = divide(array.real, divisor)
            result.imag = divide(array.imag, divisor)
            return result
        wide = np.float32 if array.dtype.name in HALVES else array.dtype.type
        return np.asarray(array.astype(wide) / wide(divisor)).astype(array.dtype)


def _complex_product(a: Array, b: Array) -> Array:
    # Spelt out, because NumPy fuses these products on some machines and not on others.
    result = np.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def _user(op: Op, values: Sequence[Array]) -> Array:
    assert op.function is not None
    result = values[0].copy()
    if result.size % op.width:
        raise BufferMismatch(
            f"op {op.name!r}: {result.size} elements are not a multiple of its width {op.width}"
        )
    flat = result.reshape(-1)
    for operand in values[1:]:
        right = operand.reshape(-1)
        for i in range(0, flat.size, op.width):
            group = slice(i, i + op.width)
            if op.width == 1:
                flat[i] = op.function(flat[i], right[i])
            else:
                flat[group] = op.function(flat[group].copy(), right[group])
    return result
