"""A call like one before goes straight to the engine: the checks were made then."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from hpcoll.runtime import progress, words
from hpcoll.runtime.binding import layout_known
from hpcoll.runtime.engines import CompiledEngine
from hpcoll.runtime.plan import Binding

if TYPE_CHECKING:
    from hpcoll.runtime.entry import Entry
    from hpcoll.runtime.session import Session

_LAYOUT_KNOWN = layout_known()


class Shortcuts:
    """The shortcuts of a communicator.

    Parameters
    ----------
    session : Session
        Its runtime.
    """

    def __init__(self, session: Session) -> None:
        engine = session.engine
        compiled = isinstance(engine, CompiledEngine)
        self.usable = compiled and session.settings.progress == "none" and _LAYOUT_KNOWN
        self._session = session
        self._engine: Any = engine
        self._known: dict[Hashable, Entry] = {}
        self._flights = progress.flights

    def run(self, key: Hashable, x: Any, out: Any) -> Entry | None:
        """Carry a call out; None, and nothing done, where the long way must be taken.

        Parameters
        ----------
        key : hashable
            All that tells the call from others, but for the arrays' memory.
        x, out : ndarray or None
            The arrays, if any.
        """
        entry = self._known.get(key)
        if entry is None or self._flights:
            return None
        free = entry.free[x is out and x is not None]
        if not free:
            return None
        run = free.pop()
        code = self._engine.briefly(
            run.address, 0 if x is None else id(x), 0 if out is None else id(out)
        )
        if code == words.UNFIT:
            free.append(run)
            return None
        if code == words.BOUND:
            code = self._engine.entry(run.address)
        if code != words.DONE:
            limit = self._session.settings.timeout_s
            Binding(self._session, run, entry.name, x, out, out).rest(code, limit)
        free.append(run)
        return entry

    def remember(self, key: Hashable, entry: Entry) -> None:
        """Keep a shortcut."""
        self._known[key] = entry

    def forget(self, entry: Entry) -> None:
        """Drop the shortcuts to an entry that leaves the cache."""
        self._known = {k: e for k, e in self._known.items() if e is not entry}
