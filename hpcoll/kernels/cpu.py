"""Compiled reductions: one pass over all operands, whatever aliases whatever.

A kernel is the address of ``void f(int64 dst, int64 table, int64 noperands, int64
nbytes)``, where `table` is the address of `noperands` addresses. `dst` may be one of
the operands. Addresses are aligned to an element, not more.

The vectors are spelt out, because LLVM makes none by itself where `dst` may alias.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import cfunc as _numba_cfunc
from numba.core import types

from hpcoll.kernels.blocks import divide_all, fold_all
from hpcoll.kernels.compile import cache_folder, compiling
from hpcoll.kernels.dtypes import check_supported
from hpcoll.kernels.lanes import spec_of
from hpcoll.schedule.ops import AVG, Op

cfunc: Any = _numba_cfunc
SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)

_lock = threading.RLock()
_kernels: dict[str, Any] = {}


def fold_address(op: Op, dtype: np.dtype[Any]) -> int:
    """Return the address of the kernel that folds arrays of a dtype.

    It combines the operands from left to right, as `reference.fold` does. The first
    call for a pair compiles, or loads from numba's cache.

    Parameters
    ----------
    op : Op
        Built-in or made by `hpcoll.op`.
    dtype : numpy.dtype
        Element type.

    Returns
    -------
    int
        Valid until the process ends.

    Raises
    ------
    BufferMismatch
        If the operator doesn't go with the dtype.
    ConfigError
        If numba can't compile the user's function.
    """
    dtype = np.dtype(dtype)
    check_supported(op, dtype)
    if op.function is None:
        return _address(spec_of(op.name, dtype), _make_fold)
    from hpcoll.kernels.user import user_address

    return user_address(op, dtype)


def divide_address(dtype: np.dtype[Any]) -> int:
    """Return the address of the kernel that ends an average.

    Its `noperands` is the divisor, and `table` holds the one address of the source.

    Raises
    ------
    BufferMismatch
        If the dtype is neither floating nor complex.
    """
    dtype = np.dtype(dtype)
    check_supported(AVG, dtype)
    return _address(spec_of("div", dtype), _make_divide)


def _address(spec: str, make: Callable[[str, bool], Any]) -> int:
    with _lock:
        kernel = _kernels.get(spec)
        if kernel is None:
            kernel = _kernels[spec] = _compile(spec, make)
        return int(kernel.address)


def _compile(spec: str, make: Callable[[str, bool], Any]) -> Any:
    digest = _sources_digest()
    if cache_folder(_compile) is not None:
        try:
            with compiling(f"kernel {spec}", _compile, digest):
                return make(f"{spec}/{digest}", True)
        except OSError:  # a full disk, a folder that went away
            pass
    return make(f"{spec}/{digest}", False)


@cache
def _sources_digest() -> str:
    """Hash the code that makes code, which numba's own cache key doesn't cover."""
    folder = Path(__file__).parent
    names = ("cpu.py", "blocks.py", "lanes.py", "halves.py", "intrinsics.py")
    sources = b"".join((folder / name).read_bytes() for name in names)
    return hashlib.blake2b(sources, digest_size=6).hexdigest()


def _make_fold(spec: str, cached: bool) -> Any:
    # The closure holds a string alone: numba's cache key is a hash of it.
    def fold(dst: int, table: int, noperands: int, nbytes: int) -> None:
        fold_all(spec, dst, table, noperands, nbytes)

    return _cfunc(fold, spec, cached)


def _make_divide(spec: str, cached: bool) -> Any:
    def divide(dst: int, table: int, divisor: int, nbytes: int) -> None:
        divide_all(spec, dst, table, divisor, nbytes)

    return _cfunc(divide, spec, cached)


def _cfunc(function: Callable[..., None], spec: str, cached: bool) -> Any:
    # The name makes the symbol: two kernels that other processes cached must differ.
    name = "_".join((function.__name__, *spec.split("/")[:2]))
    function.__name__ = function.__qualname__ = name
    return cfunc(SIGNATURE, cache=cached, nopython=True)(function)
