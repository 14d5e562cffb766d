"""Arrays amid poisoned memory, in several layouts, and their comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

POISON = b"\xa5"
GUARD_NBYTES = 64


def poison(view: Any) -> None:
    """Fill an array of any dtype and strides with a known pattern."""
    size = view.dtype.itemsize
    view.view(f"V{size}")[...] = np.void(POISON * size)


class Field:
    """An array in the middle of poisoned memory, in some layout.

    The memory comes from `make`, such as a communicator's `empty`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        layout: str = "C",
        make: Callable[..., Any] = np.empty,
    ) -> None:
        n = int(np.prod(shape, dtype=np.int64))
        room = 2 * n * dtype.itemsize + 2 * GUARD_NBYTES
        self.memory = make(room, np.uint8)
        self.memory[...] = POISON[0]
        body = self.memory[GUARD_NBYTES:-GUARD_NBYTES].view(dtype)
        dense = body[:n]
        if layout == "F":
            self.view = dense.reshape(shape[::-1]).T
        elif layout == "strided" and shape:
            self.view = body.reshape(2 * shape[0], *shape[1:])[::2]
        elif layout == "reversed" and shape:
            self.view = dense.reshape(shape)[::-1]
        elif layout == "column" and shape:
            self.view = body.reshape(*shape, 2)[..., 1]
        else:
            self.view = dense.reshape(shape)

    def check(self, where: str) -> None:
        """See that nothing but the array was written."""
        kept = self.view.copy()
        poison(self.view)
        wrong = np.flatnonzero(self.memory != POISON[0])
        self.view[...] = kept
        assert not wrong.size, f"{where}: wrote outside of the array, at byte {wrong[0]}"


def assert_same(got: Any, want: Any, where: str) -> None:
    """Compare shape, dtype and every element; NaN equals NaN."""
    assert got is not None, f"{where}: got nothing"
    assert got.shape == want.shape, f"{where}: shape {got.shape}, not {want.shape}"
    assert got.dtype == want.dtype, f"{where}: dtype {got.dtype}, not {want.dtype}"
    wrong = (got != want) & ((got == got) | (want == want))
    if np.any(wrong):
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{where}: {np.count_nonzero(wrong)} of {got.size} elements are wrong, "
            f"the first at {at}: {got[at]!r}, not {want[at]!r}"
        )
