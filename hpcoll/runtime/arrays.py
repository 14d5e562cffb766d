"""What users pass: arrays are checked, and packed where they aren't contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.errors import BufferMismatch

Array = NDArray[Any]


def as_input(x: object, what: str = "x") -> Array:
    """An input as an array; scalars and sequences of numbers become one.

    Raises
    ------
    BufferMismatch
        If its elements can't be sent: objects, structures, another byte order.
    """
    if type(x) is not np.ndarray:
        if x is None:
            raise BufferMismatch(f"{what} is None: pass an array")
        try:
            x = np.asarray(x)
        except (TypeError, ValueError) as error:
            raise BufferMismatch(f"{what} can't be made an array: {error}") from error
    check_dtype(x.dtype, what)
    return x


def check_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Refuse elements that are no plain values of this machine.

    Raises
    ------
    BufferMismatch
        Naming the dtype.
    """
    if dtype.isbuiltin == 1 and dtype.char != "O" and dtype.isnative:
        return
    if dtype.hasobject:
        raise BufferMismatch(f"{what} has dtype {dtype}: Python objects can't be sent")
    if dtype.names is not None or dtype.subdtype is not None:
        raise BufferMismatch(f"{what} has structured dtype {dtype}: send its fields one by one")
    if not dtype.isnative:
        raise BufferMismatch(
            f"{what} has dtype {dtype!r} of another byte order: convert it by "
            f"{what}.astype({what}.dtype.newbyteorder('='))"
        )
    if dtype.itemsize == 0:
        raise BufferMismatch(f"{what} has dtype {dtype} of size 0")


def as_output(
    out: object, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any], why: str
) -> Array:
    """Check an output array against what the result needs.

    Parameters
    ----------
    out : object
        What the user passed.
    shapes : sequence of tuple
        The shapes that would do, the usual one first.
    dtype : numpy.dtype
        The result's dtype.
    why : str
        What determines the shape, for the message.

    Raises
    ------
    BufferMismatch
        If it is no writeable array of that shape and dtype.
    """
    if not isinstance(out, np.ndarray):
        raise BufferMismatch(f"out must be a NumPy array, not {type(out).__name__}")
    if out.dtype != dtype:
        raise BufferMismatch(f"out has dtype {out.dtype}, but the result has {dtype}")
    if out.shape not in shapes:
        raise BufferMismatch(f"out has shape {out.shape}, but {why} needs {shapes[0]}")
    if not out.flags.writeable:
        raise BufferMismatch("out is read-only: pass a writeable array")
    return out


def address_of(array: Array | None) -> int:
    """Address of an array's first element; 0 without one."""
    if array is None or array.size == 0:
        return 0
    return int(array.__array_interface__["data"][0])


def overlap(a: Array, b: Array) -> bool:
    """Whether the bytes of two arrays may overlap."""
    return bool(a.size and b.size and np.may_share_memory(a, b))
