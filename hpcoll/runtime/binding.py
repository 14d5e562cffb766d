"""Binding NumPy arrays to a run in compiled code: a call like one before needs no more.

What must be looked at again is what could differ between arrays of the same shape and
dtype: contiguity, write access, and where they lie relative to each other.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import njit

from hpcoll.kernels.intrinsics import load64, store64
from hpcoll.runtime.recipe import DST, SRC
from hpcoll.runtime.words import ALIASED, BASES, SHIFT, SOURCE_NBYTES, TARGET_NBYTES

DATA_AT = object.__basicsize__
FLAGS_AT = DATA_AT + 48
"""NumPy keeps an array's address right after the object's header, then its number of
sides, and the addresses of shape, strides, base and dtype, then flags
(PyArrayObject_fields)."""

C_CONTIGUOUS, WRITEABLE = 0x1, 0x400


def layout_known() -> bool:
    """Whether arrays are laid out as expected, looked up in several kinds of them."""
    base = np.arange(24.0)
    fixed = np.arange(3)
    fixed.flags.writeable = False
    for a in (base, base[3:], base[::2], base.reshape(4, 6)[1:, 2:], np.zeros((), "i1"), fixed):
        data = ctypes.c_int64.from_address(id(a) + DATA_AT).value
        flags = ctypes.c_int32.from_address(id(a) + FLAGS_AT).value
        if (
            data != a.__array_interface__["data"][0]
            or bool(flags & C_CONTIGUOUS) != a.flags.c_contiguous
            or bool(flags & WRITEABLE) != a.flags.writeable
        ):
            return False
    return True


@njit(nogil=True)
def bind_arrays(run: int, x: int, out: int) -> bool:
    """Bind the arrays that are the objects `x` and `out`; false if they don't fit the run.

    0 stands for no array.
    """
    source = target = 0
    if x != 0:
        if load64(x + FLAGS_AT) & C_CONTIGUOUS == 0:
            return False
        source = load64(x + DATA_AT)
    if out != 0:
        needed = C_CONTIGUOUS | WRITEABLE
        if load64(out + FLAGS_AT) & needed != needed:
            return False
        target = load64(out + DATA_AT)
    if load64(run + 8 * ALIASED) != 0:
        if source - target != load64(run + 8 * SHIFT):
            return False
    elif (
        x != 0 and out != 0
        and source < target + load64(run + 8 * TARGET_NBYTES)
        and target < source + load64(run + 8 * SOURCE_NBYTES)
    ):  # fmt: skip
        return False
    bases = load64(run + 8 * BASES)
    store64(bases + 8 * SRC, source)
    store64(bases + 8 * DST, target)
    return True
