"""A call like one before goes straight to the engine: the checks were made then.

What is looked at is what could differ: names, shapes, dtypes and options (the key),
contiguity, write access, and where the arrays lie relative to each other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcoll.runtime import progress
from hpcoll.runtime.arrays import Array, address_of
from hpcoll.runtime.engines import CompiledEngine
from hpcoll.runtime.run import Run

if TYPE_CHECKING:
    from hpcoll.runtime.entry import Entry
    from hpcoll.runtime.session import Session

_word_at = ctypes.c_int64.from_address
_DATA = object.__basicsize__
"""NumPy keeps an array's address right after the object's header (PyArrayObject_fields)."""


def _read_address(array: Array) -> int:
    return _word_at(id(array) + _DATA).value


def _self_check() -> bool:
    """Whether the address is where it is expected, on arrays of several kinds."""
    base = np.arange(24.0)
    samples = [base, base[3:], base.reshape(4, 6)[1:, 2:], np.zeros((), np.int8)]
    return all(_read_address(a) == a.__array_interface__["data"][0] for a in samples)


quick_address: Callable[[Array], int] = _read_address if _self_check() else address_of


class Shortcut:
    """What a call needs that is like one before.

    Parameters
    ----------
    key : tuple
        The recipe's key in the cache.
    entry : Entry
        The recipe's entry.
    shift : int
        Bytes from the output's start to the input's when the call is in place.
    """

    __slots__ = ("_free", "_in_place", "_shift", "entry", "key")

    def __init__(self, key: tuple[Any, ...], entry: Entry, shift: int) -> None:
        self.key = key
        self.entry = entry
        self._shift = shift
        self._in_place = entry.may_alias
        self._free = entry.free

    def take(self, x: Array, out: Array) -> Run | None:
        """A run bound to the arrays; None where the long way must be taken."""
        target_flags = out.flags
        if not (x.flags.c_contiguous and target_flags.c_contiguous and target_flags.writeable):
            return None
        source, target = quick_address(x), quick_address(out)
        aliased = False
        if source < target + out.nbytes and target < source + x.nbytes:
            if source - target != self._shift or not self._in_place:
                return None
            aliased = True
        free = self._free[aliased]
        if not free:
            return None
        run = free.pop()
        run.bind(source, target)
        return run


class Shortcuts:
    """The shortcuts of a communicator.

    Parameters
    ----------
    session : Session
        Its runtime.
    """

    def __init__(self, session: Session) -> None:
        engine = session.engine
        self.usable = isinstance(engine, CompiledEngine) and session.settings.progress == "none"
        self._execute: Any = engine.entry if isinstance(engine, CompiledEngine) else None
        self._known: dict[Hashable, Shortcut] = {}
        self._flights = progress.flights

    def find(self, key: Hashable) -> Shortcut | None:
        """The shortcut for a call, if there is one and nothing else is in flight."""
        return None if self._flights else self._known.get(key)

    def execute(self, run: Run) -> int:
        """Run; return the engine's code."""
        code: int = self._execute(run.address)
        return code

    def remember(self, key: Hashable, shortcut: Shortcut) -> None:
        """Keep a shortcut."""
        self._known[key] = shortcut

    def forget(self, entry: Entry) -> None:
        """Drop the shortcuts to an entry that leaves the cache."""
        self._known = {k: s for k, s in self._known.items() if s.entry is not entry}
