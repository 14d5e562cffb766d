"""Which operators go with which dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hpcoll.errors import BufferMismatch
from hpcoll.schedule.ops import Op

DTYPES: dict[str, np.dtype[Any]] = {
    np.dtype(scalar).name: np.dtype(scalar)
    for scalar in (
        np.float16,
        np.float32,
        np.float64,
        ml_dtypes.bfloat16,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.uint16,
        np.uint32,
        np.uint64,
        np.bool_,
        np.complex64,
        np.complex128,
    )
}

HALVES = ("float16", "bfloat16")
"""Names of the dtypes that are folded in float32."""

_REAL = tuple(n for n in DTYPES if "float" in n)
_COMPLEX = tuple(n for n in DTYPES if n.startswith("complex"))
_INTEGRAL = tuple(n for n in DTYPES if n not in _REAL + _COMPLEX)

_ACCEPTED: dict[str, tuple[str, ...]] = {
    "avg": _REAL + _COMPLEX,
    "min": _REAL + _INTEGRAL,
    "max": _REAL + _INTEGRAL,
    "band": _INTEGRAL,
    "bor": _INTEGRAL,
    "bxor": _INTEGRAL,
}
_ADVICE = {
    "avg": "use a floating or complex dtype, or op 'sum' and divide yourself",
    "min": "complex numbers have no order: use a real dtype",
    "max": "complex numbers have no order: use a real dtype",
    "band": "use an integer dtype or bool, or op 'land'",
    "bor": "use an integer dtype or bool, or op 'lor'",
    "bxor": "use an integer dtype or bool, or op 'lxor'",
}


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the key of `dtype` in `DTYPES`.

    Raises
    ------
    BufferMismatch
        If arrays of this dtype can't be reduced at all.
    """
    name = _name(np.dtype(dtype))
    if name is None:
        raise BufferMismatch(_refusal(np.dtype(dtype)))
    return name


def check_supported(op: Op, dtype: np.dtype[Any]) -> None:
    """Refuse what an operator can't combine.

    Parameters
    ----------
    op : Op
        A built-in or a user operator.
    dtype : numpy.dtype
        Element type of the arrays to combine.

    Raises
    ------
    BufferMismatch
        Names both, and says what would be right.
    """
    dtype = np.dtype(dtype)
    name = _name(dtype)
    if name is None:
        raise BufferMismatch(f"op {op.name!r}: {_refusal(dtype)}")
    if op.function is not None:
        if op.width > 1 and name in HALVES:
            raise BufferMismatch(
                f"op {op.name!r} of width {op.width} can't combine {name}: use float32 or float64"
            )
    elif name not in _ACCEPTED.get(op.name, DTYPES):
        raise BufferMismatch(f"op {op.name!r} can't combine {name}: {_ADVICE[op.name]}")


def identity(op: Op, dtype: np.dtype[Any]) -> Any:
    """Return the value that leaves any other as it is.

    Returns
    -------
    numpy scalar of `dtype`, or None
        For a user operator what its maker gave, as it was given.
    """
    if op.function is not None:
        return op.identity
    check_supported(op, dtype)
    dtype = np.dtype(dtype)
    low, high = _limits(dtype)
    if op.name == "band":
        return ~dtype.type(0)
    value = {"prod": 1, "land": 1, "min": high, "max": low}.get(op.name, 0)
    return dtype.type(value)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min, info.max
    return (False, True) if dtype.kind == "b" else (-np.inf, np.inf)


def _name(dtype: np.dtype[Any]) -> str | None:
    return dtype.name if DTYPES.get(dtype.name) == dtype else None


def _refusal(dtype: np.dtype[Any]) -> str:
    if dtype.fields is not None or dtype.subdtype is not None:
        why = "structured arrays are not reduced: pass one field, or a view as a plain dtype"
    elif not dtype.isnative:
        why = f"use the machine's byte order: array.astype({dtype.newbyteorder('=').name!r})"
    elif dtype.kind == "O":
        why = "an array of Python objects has no numbers in it that other ranks could read"
    else:
        why = f"use one of {', '.join(DTYPES)}"
    return f"dtype {dtype} can't be used: {why}"
