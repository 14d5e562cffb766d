"""How a program ends: one rank's failure ends the job, and no rank leaves unseen.

An exception that nothing catches, or sys.exit with a non-zero status, would leave the
other ranks waiting. With hooks on (HPCOLL_HOOKS=1), it aborts the job once the
traceback is out. A rank that ends normally tells the others, so that those who wait
for it raise instead of waiting. A process forked off a rank is no rank: it may end
as it likes, and can't use the communicators.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import os
import sys
import threading
import time
from types import TracebackType
from typing import Any, NoReturn

from hpcoll.errors import HpcollError
from hpcoll.runtime import progress
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.session import Session

LAST_WORDS_S = 0.2
"""How long the launcher gets to read the reason before the job is aborted."""

_sessions: list[Session] = []
_done: set[str] = set()
_status = 0
_forked = False


class _Exit(SystemExit):
    """A SystemExit that notices when it ends the program.

    It dies in a Python frame when something caught it, and outside of all frames
    when it ends the interpreter: that is how the status is known to exit handlers.
    """

    def __del__(self) -> None:
        global _status
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            sys._getframe(1)
        except ValueError:
            code = self.code
            _status = code if isinstance(code, int) else int(code is not None)


def watch(session: Session) -> None:
    """See to it that a session's ranks end together."""
    _sessions[:] = [s for s in _sessions if not s.closed]
    _sessions.append(session)
    if "leave" not in _done:
        _done.add("leave")
        atexit.register(_leave)
        os.register_at_fork(after_in_child=_forget)
    if session.settings.hooks:
        install()


def install() -> None:
    """Let an exception or a non-zero sys.exit end the whole job, if it has several ranks."""
    interactive = hasattr(sys, "ps1") or sys.flags.interactive
    if "hooks" in _done or interactive or mpi().COMM_WORLD.Get_size() == 1:
        return
    _done.add("hooks")
    before = sys.excepthook
    plain_exit = sys.exit

    def excepthook(
        kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            before(kind, value, trace)
        finally:
            _abort(130 if issubclass(kind, KeyboardInterrupt) else 1, kind.__name__)

    def exit_(status: Any = None, /) -> NoReturn:
        if status is None or status == 0:
            plain_exit(status)
        raise _Exit(status)

    sys.excepthook = excepthook
    sys.exit = exit_
    for name in ("exit", "quit"):  # for interactive use, yet scripts call them
        if hasattr(builtins, name):
            setattr(builtins, name, exit_)


def _abort(status: int, why: str) -> None:
    """End the job on all ranks."""
    module = mpi()
    if _forked or module.Is_finalized():
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        rank = module.COMM_WORLD.Get_rank()
        print(f"hpcoll: rank {rank} ends by {why}: aborting the job", file=sys.stderr, flush=True)
    # The launcher drops what it has not passed on when it kills the job.
    time.sleep(LAST_WORDS_S)
    module.COMM_WORLD.Abort(status & 0xFF or 1)


def _leave() -> None:
    """Before MPI is finalised: abort with the status, or say good-bye."""
    if _forked or mpi().Is_finalized():
        return
    if _status:
        _abort(_status, f"exit status {_status}")
    for session in _sessions:
        with contextlib.suppress(HpcollError):
            session.leave()
    _outlive([*_sessions, *progress.flights])


def _outlive(things: list[Any]) -> None:
    """Keep memory that MPI may still read or write while it is finalised.

    Python frees what is left before mpi4py finalises MPI, which still moves messages
    that nobody waited for.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))


def _forget() -> None:
    global _forked
    _forked = True
    for session in _sessions:
        session.spoil("it belongs to the process that this one was forked off")
