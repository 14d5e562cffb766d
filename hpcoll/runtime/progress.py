"""What is in flight in this process, and how it advances.

There is one list. Any wait or test advances every started run of every
communicator, in the order in which they were started. Nothing advances outside
such calls unless HPCOLL_PROGRESS=thread.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from hpcoll.errors import HpcollError
from hpcoll.runtime import words
from hpcoll.runtime.patience import Patience, nap_s
from hpcoll.runtime.run import Run

if TYPE_CHECKING:
    from hpcoll.runtime.session import Session

LOOK_EVERY_S = words.SLICE_NS / 1e9
_TURNS_BEFORE_SLEEP = 200

flights: list[Flight] = []
lock = threading.RLock()


class Flight:
    """A started run.

    Parameters
    ----------
    session : Session
        The communicator's runtime.
    run : Run
        What was started.
    name : str
        ``collective/algorithm``, for messages.
    keep : tuple
        Whatever must live until the run ends.
    timeout_s : float
        Time limit.
    """

    __slots__ = (
        "call",
        "done",
        "error",
        "keep",
        "looked_at",
        "name",
        "patience",
        "row",
        "run",
        "session",
    )

    def __init__(
        self, session: Session, run: Run, name: str, keep: tuple[Any, ...], timeout_s: float
    ) -> None:
        self.session = session
        self.run = run
        self.name = name
        self.keep = keep
        self.call = run.word(words.CALL)
        self.done = False
        self.error: HpcollError | None = None
        self.row = -1
        self.patience = Patience(timeout_s)
        self.looked_at = time.monotonic()
        with lock:
            flights.append(self)

    def advance(self, slice_ns: int) -> None:
        """Go on with the run; note its end or its error."""
        if self.done:
            return
        code = self.session.engine.advance(self.run, slice_ns)
        if code == words.DONE:
            self.finish(None)
        elif code != words.PENDING:
            self.session.fail(self, self.session.error_of(code, self.run, self.name))
        elif time.monotonic() - self.looked_at >= LOOK_EVERY_S:
            self.look()

    def look(self) -> None:
        """See whether a waiting run can still end well."""
        self.looked_at = time.monotonic()
        try:
            self.session.watch(self)
        except HpcollError as error:
            self.session.fail(self, error)

    def finish(self, error: HpcollError | None) -> None:
        """Leave the list."""
        self.done = True
        self.error = error
        with lock:
            if self in flights:
                flights.remove(self)


def advance_all() -> None:
    """Give every started run a chance, in issue order."""
    with lock:
        for flight in list(flights):
            flight.advance(0)


def wait(flight: Flight) -> None:
    """Advance everything until a flight has ended."""
    turns, row = 0, -1
    while not flight.done:
        with lock:
            if len(flights) == 1:
                flight.advance(words.SLICE_NS)
                continue
            advance_all()
        if flight.run.position != row:
            turns, row = 0, flight.run.position
        turns += 1
        if turns < _TURNS_BEFORE_SLEEP:
            os.sched_yield()
        else:
            flight.patience.nap()


class ProgressThread:
    """Advances everything in the background (HPCOLL_PROGRESS=thread)."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hpcoll-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(Warning):  # under -W error it would end the thread
                advance_all()
            time.sleep(min((nap_s(f.patience.still_s) for f in list(flights)), default=1e-3))


_thread: ProgressThread | None = None


def start_thread() -> None:
    """Start the background thread, once."""
    global _thread
    if _thread is None:
        _thread = ProgressThread()
        atexit.register(_thread.stop)
