"""The runtime of one communicator: its channel, its agreement, its call numbers."""

from __future__ import annotations

import contextlib
import hashlib
import time
import warnings
from functools import cache
from typing import Any

import numpy as np

from hpcoll.config import Settings
from hpcoll.errors import CollectiveTimeout, HpcollError, TransportError
from hpcoll.runtime import progress, words
from hpcoll.runtime.agreement import HISTORY, Agreement, failure_of
from hpcoll.runtime.engines import CompiledEngine, PythonEngine
from hpcoll.runtime.mailbox import Mailbox
from hpcoll.runtime.run import Run
from hpcoll.runtime.transport import load_transport
from hpcoll.schedule.symbols import rank_list

REPORT_AGAIN_S = 10.0
_NAP_S = 50e-6


@cache
def _engine(name: str) -> PythonEngine | CompiledEngine:
    return PythonEngine() if name == "python" else CompiledEngine()


def signature_of(text: str) -> int:
    """64 bits of a call's text, as a signed integer."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class Session:
    """What the collectives of one communicator share.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator; opening is collective over it.
    settings : Settings
        This process's settings.
    transport : str
        A transport's name or ``"auto"``.
    oversubscribed : bool
        Whether ranks outnumber cores.
    """

    def __init__(
        self, comm: Any, settings: Settings, transport: str, *, oversubscribed: bool
    ) -> None:
        module = load_transport(transport)
        self.settings = settings
        self.channel = module.open_channel(
            comm, limit=settings.max_message_nbytes, oversubscribed=oversubscribed
        )
        self.mailbox = Mailbox(comm)
        self.rank, self.size = self.mailbox.rank, self.mailbox.size
        self.agreement = Agreement(self.mailbox, self.text_of)
        self.engine = _engine(settings.engine)
        self.unusable: str | None = None
        self._history = np.zeros(HISTORY, np.int64)
        self._texts: dict[int, str] = {}
        self._agreeing: tuple[int, str] | None = None
        self._kept: list[Any] = []
        table = self.channel.table
        table[words.HISTORY] = self._history.ctypes.data
        table[words.HISTORY_MASK] = HISTORY - 1

    @property
    def calls(self) -> int:
        """Number of the last call."""
        return int(self.channel.table[words.CALLS])

    def sign(self, text: str, agreed: str | None = None) -> int:
        """Remember a call's text, or the shorter one that was agreed; return its signature."""
        signature = signature_of(text)
        self._texts[signature] = agreed or text
        return signature

    def text_of(self, call: int) -> str | None:
        """This rank's text of a call; None where it has not come to it or forgot it."""
        if self._agreeing is not None and self._agreeing[0] == call:
            return self._agreeing[1]
        if not max(0, self.calls - HISTORY) < call <= self.calls:
            return None
        return self._texts.get(int(self._history[call & (HISTORY - 1)]))

    def count(self, text: str) -> int:
        """Take a call number for a call that runs nothing; return it."""
        table = self.channel.table
        table[words.CALLS] += 1
        self._history[self.calls & (HISTORY - 1)] = self.sign(text)
        return self.calls

    def check_usable(self) -> None:
        """Raise if the communicator can't be used any more.

        Raises
        ------
        TransportError
            If it was closed, or a call on it failed half-way.
        """
        if self.unusable is not None:
            raise TransportError(f"this communicator can't be used any more: {self.unusable}")

    def refuse(self, error: HpcollError) -> None:
        """Refuse the call that is being made: the others learn it, no number is lost."""
        if self.channel.closed or self.size == 1:
            return
        call = self.count(f"a call that it refused ({error})")
        self.agreement.refuse(call, error)
        with contextlib.suppress(TransportError):
            self.agreement.look()

    def agree(self, text: str, data: Any, timeout_s: float) -> dict[int, Any]:
        """Agree with all ranks on the next call, before any data moves.

        Returns
        -------
        dict
            What each rank brought.

        Raises
        ------
        MismatchError, PeerFailure, CollectiveTimeout
            As in `Agreement.exchange`; the communicator stays usable after a
            mismatch.
        """
        if self.size == 1:
            return {self.rank: data}
        call = self.calls + 1
        self._agreeing = (call, text)
        watch = _Patience(self, call, text, timeout_s)
        try:
            return self.agreement.exchange(call, text, data, watch)
        except CollectiveTimeout as error:
            self.poison(str(error))
            raise
        except TransportError as error:
            failure = failure_of(error, self.channel.failed())
            self.poison(str(failure))
            self.abandon()
            raise failure from None
        except HpcollError:
            self.count(text)
            raise
        finally:
            self._agreeing = None

    def watch(self, flight: progress.Flight) -> None:
        """See to a flight that waits: letters, reports, warning, time limit.

        Raises
        ------
        HpcollError
            If it can't end well.
        """
        now = time.monotonic()
        row = flight.run.word(words.ROW)
        if row != flight.row:
            flight.row, flight.moved_at = row, now
        if self.size > 1:
            try:
                self.agreement.look()
            except TransportError as error:
                raise failure_of(error, self.channel.failed()) from None
            self.agreement.judge(flight.call)
        waited = now - flight.moved_at
        if waited < self.settings.stall_s:
            return
        missing = flight.run.waits_for()
        if self.size > 1 and now - flight.reported_at > REPORT_AGAIN_S:
            flight.reported_at = now
            self.agreement.report(flight.call, self.text_of(flight.call) or "", missing)
            failed = self.channel.failed()
            if failed:
                raise failure_of(TransportError("the library reports it"), failed)
        where = f"{self.where(flight.name)} step {flight.run.step}"
        self.warn_or_fail(where, now - flight.started_at, missing, flight)

    def warn_or_fail(self, where: str, waited: float, missing: list[int], waiter: Any) -> None:
        """Warn once after a while, and raise at the time limit.

        Raises
        ------
        CollectiveTimeout
            At the limit.
        """
        if waited < min(self.settings.warn_s, waiter.timeout_s):
            return
        ranks = rank_list(sum(1 << r for r in missing)) if missing else "other ranks"
        who = f"rank {ranks}" if missing else ranks
        known = self.agreement.silent(self.calls, missing)
        text = f"{where}: waited {waited:.3g} s for {who}" + (f" ({known})" if known else "")
        if waited >= waiter.timeout_s:
            raise CollectiveTimeout(text)
        if not waiter.warned:
            waiter.warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def where(self, name: str) -> str:
        """``rank 3/8 allreduce/ring``."""
        return f"rank {self.rank}/{self.size} {name}"

    def error_of(self, code: int, run: Run, name: str) -> HpcollError:
        """The error for an engine's code."""
        if code == words.UNUSABLE:
            return TransportError(f"this communicator can't be used any more: {self.unusable}")
        text, failed = self.channel.explain_error(words.MPI_ERROR - code)
        where = f"{self.where(name)} step {run.step}"
        return failure_of(TransportError(f"{where}: {text}"), failed)

    def fail(self, flight: progress.Flight, error: HpcollError) -> None:
        """End a flight, and with it the communicator: its messages are half-way."""
        self._kept.append((flight.run, flight.keep))
        self.poison(str(error))
        if isinstance(error, TransportError):
            self.abandon()
        flight.finish(error)
        for other in [f for f in progress.flights if f.session is self]:
            self._kept.append((other.run, other.keep))
            other.finish(TransportError(f"given up, because another call failed: {error}"))

    def poison(self, reason: str) -> None:
        """Make the communicator unusable; its buffers stay alive."""
        self.unusable = reason
        self.channel.table[words.USABLE] = 0

    def abandon(self) -> None:
        """Tell the peers, where the library can, not to wait for this rank."""
        self.channel.abandon()
        self.mailbox.abandon()

    def leave(self) -> None:
        """Tell the others that this rank ends."""
        if self.mailbox.size > 1 and not self.channel.closed:
            self.agreement.leave(self.calls)

    def close(self) -> None:
        """Free everything; collective. Does nothing the second time."""
        if self.channel.closed:
            return
        usable = self.unusable is None
        self.poison("it was closed")
        if usable:
            self.channel.close()
            self.mailbox.close()


class _Patience:
    """What an agreement does while ranks are missing."""

    def __init__(self, session: Session, call: int, text: str, timeout_s: float) -> None:
        self.session = session
        self.call = call
        self.text = text
        self.timeout_s = timeout_s
        self.warned = False
        self._start = time.monotonic()
        self._reported = 0.0
        self._turns = 0

    def __call__(self, missing: list[int]) -> None:
        session = self.session
        self._turns += 1
        if progress.flights:
            progress.advance_all()
        if self._turns > 50:
            time.sleep(_NAP_S)
        now = time.monotonic()
        waited = now - self._start
        if waited > session.settings.stall_s and now - self._reported > REPORT_AGAIN_S:
            self._reported = now
            session.agreement.report(self.call, self.text, missing)
            failed = session.channel.failed()
            if failed:
                raise TransportError("the library reports it")
        name = self.text.split(" ", 1)[0]
        session.warn_or_fail(f"{session.where(name)} (agreeing)", waited, missing, self)
