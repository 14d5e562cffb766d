"""How a program ends: one rank's failure ends the job, and no rank leaves unseen.

An exception that nothing catches, or sys.exit with a non-zero status, would leave the
other ranks waiting. With hooks on (HPCOLL_HOOKS=1), it aborts the job once the
traceback is out. A rank that ends normally tells the others, so that those who wait
for it raise instead of waiting.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import weakref
from types import TracebackType
from typing import Any, NoReturn

from hpcoll.errors import HpcollError
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.session import Session

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_installed = False
_status = 0


class _Exit(SystemExit):
    """A SystemExit that notices when it ends the program.

    It dies in a Python frame when something caught it, and outside of all frames
    when it ends the interpreter: that is how the status is known to exit handlers.
    """

    def __del__(self) -> None:
        global _status
        try:
            sys._getframe(1)
        except ValueError:
            code = self.code
            _status = code if isinstance(code, int) else int(code is not None)


def watch(session: Session) -> None:
    """See to it that a session's ranks end together."""
    global _installed
    _sessions.add(session)
    if _installed:
        return
    _installed = True
    atexit.register(_leave)
    if session.settings.hooks and not hasattr(sys, "ps1") and not sys.flags.interactive:
        _install()


def _install() -> None:
    before = sys.excepthook
    plain_exit = sys.exit

    def excepthook(
        kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, value, trace)
        _abort(130 if issubclass(kind, KeyboardInterrupt) else 1, f"{kind.__name__}")

    def exit_(status: Any = None, /) -> NoReturn:
        if status is None or status == 0:
            plain_exit(status)
        raise _Exit(status)

    sys.excepthook = excepthook
    sys.exit = exit_


def _abort(status: int, why: str) -> None:
    """End the job on all ranks, if there are others."""
    module = mpi()
    if module.Is_finalized() or module.COMM_WORLD.Get_size() == 1:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        rank = module.COMM_WORLD.Get_rank()
        print(f"hpcoll: rank {rank} ends by {why}: aborting the job", file=sys.stderr, flush=True)
    module.COMM_WORLD.Abort(status)


def _leave() -> None:
    """Before MPI is finalised: abort with the status, or say good-bye."""
    if _status:
        _abort(_status, f"exit status {_status}")
    if mpi().Is_finalized():
        return
    for session in list(_sessions):
        with contextlib.suppress(HpcollError):
            session.leave()
