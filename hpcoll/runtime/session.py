"""The runtime of one communicator: its channel, its agreement, its call numbers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from hpcoll.config import Settings
from hpcoll.errors import HpcollError, MismatchError, TransportError, TransportUnavailable
from hpcoll.runtime import progress, words
from hpcoll.runtime.agreement import Agreement
from hpcoll.runtime.bootstrap import discover
from hpcoll.runtime.callbook import CallBook
from hpcoll.runtime.engines import CompiledEngine, PythonEngine
from hpcoll.runtime.mailbox import Mailbox
from hpcoll.runtime.patience import Patience
from hpcoll.runtime.record import failure_of, rank_words, trail
from hpcoll.runtime.run import Run
from hpcoll.runtime.transport import Channel, load_transport
from hpcoll.schedule.topology import Topology

_serial = itertools.count()


@cache
def _engine(name: str) -> PythonEngine | CompiledEngine:
    return PythonEngine() if name == "python" else CompiledEngine()


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

    Attributes
    ----------
    rank, size : int
        This rank and the number of ranks.
    crowded : bool
        Whether some node has more ranks than cores.
    topology : Topology
        Which ranks share a node.
    route : str
        The transport, and why it is that one.
    unusable : str or None
        Why the communicator can't be used any more.

    Raises
    ------
    MismatchError
        If the ranks ask for different transports.
    TransportUnavailable
        On all ranks, if the transport can't be used on one.
    CollectiveTimeout
        If a rank doesn't come.
    """

    def __init__(self, comm: Any, settings: Settings, transport: str) -> None:
        self.settings = settings
        self.unusable: str | None = None
        self.closed = False
        self._book = CallBook()
        self.channel: Any = None
        self._kept: list[Any] = []
        self.mailbox = Mailbox(comm, self._opening(Patience(settings.timeout_s)))
        self.rank, self.size = self.mailbox.rank, self.mailbox.size
        self.agreement = Agreement(self.mailbox, self._book.spoken)
        lacks = self._load(transport)
        found, self.crowded = discover(comm)
        self.topology = found
        if settings.ranks_per_node:
            self.topology = Topology.blocks(self.size, settings.ranks_per_node)
        self.channel, self.route = self._route(comm, transport, len(found.nodes), lacks)
        self._book.attach(self.channel.table)

    def _opening(self, patience: Patience) -> Callable[[], None]:
        """What is done while other ranks have not come to open the communicator."""

        def waiting() -> None:
            patience.tick()
            text = "opening a communicator: waited {} for other ranks"
            patience.complain(self.settings.warn_s, text.format)
            patience.nap()

        return waiting

    def _load(self, transport: str) -> str:
        """Load what the calls need, if all ranks can; return why shm can't be used."""
        failure, reason, lacks = None, None, ""
        try:
            load_transport("mpi" if transport == "auto" else transport)
            self.engine = _engine(self.settings.engine)
        except Exception as error:
            failure, reason = error, f"{type(error).__name__}: {error}"
        if transport == "auto" and failure is None:
            try:
                load_transport("shm")
            except TransportUnavailable as error:
                lacks = str(error)
        text = f"communicator over transport {transport}"
        brought = self.agree(text, [next(_serial), reason, lacks], self.settings.timeout_s)
        self.mailbox.number(int(brought[0][0]))
        if failure is not None:
            raise failure
        for rank in sorted(brought):
            if brought[rank][1]:
                raise TransportUnavailable(f"rank {rank}: {brought[rank][1]}")
        return next((f"rank {r}: {b[2]}" for r, b in sorted(brought.items()) if b[2]), "")

    def _route(self, comm: Any, transport: str, nodes: int, lacks: str) -> tuple[Channel, str]:
        """Open the transport; say which, and why it is that one."""
        if transport == "shm" and nodes > 1:
            raise TransportUnavailable(
                f"shm serves ranks of one node, and these are on {nodes}: use auto or mpi"
            )
        if transport != "auto":
            return self._open(comm, transport), f"{transport}: asked for by name"
        if nodes > 1:
            return self._open(comm, "mpi"), f"mpi: the ranks are on {nodes} nodes"
        if not lacks:
            try:
                return self._open(comm, "shm"), "shm: all ranks are on one node"
            except TransportUnavailable as error:  # on all ranks
                lacks = str(error)
        return self._open(comm, "mpi"), f"mpi: shm can't be used ({lacks})"

    def _open(self, comm: Any, transport: str) -> Channel:
        channel: Channel = load_transport(transport).open_channel(
            comm, limit=self.settings.max_message_nbytes, oversubscribed=self.crowded
        )
        return channel

    @property
    def calls(self) -> int:
        """Number of the last call."""
        return self._book.last

    def sign(self, text: str) -> int:
        """Remember a call's text; return its signature."""
        return self._book.sign(text)

    def count(self, text: str) -> int:
        """Take a call number for a call that runs nothing; return it."""
        return self._book.count(text)

    def check_usable(self) -> None:
        """Raise if the communicator can't be used any more.

        Raises
        ------
        TransportError
            If it was closed, or a call on it failed half-way.
        """
        if self.unusable is not None:
            raise TransportError(f"this communicator can't be used any more: {self.unusable}")

    def refuse(self, error: BaseException) -> None:
        """Refuse the call that is being made: the others learn it, no number is lost."""
        if self.unusable is None and self.size > 1:
            self.agreement.refuse(self.count("a call that it refused"), error)
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
        MismatchError
            If a rank means another call. No data has moved then, and the communicator
            stays usable, unless other ranks had run the call.
        PeerFailure, CollectiveTimeout, TransportError
            As in `Agreement.exchange`; the communicator can't be used any more.
        """
        if self.size == 1:
            return {self.rank: data}
        self._book.skip_unmade()
        call = self.calls + 1
        patience = Patience(timeout_s)
        where = self.where(f"{text.split(' [')[0]} (agreeing, before step 0)")

        def waiting(missing: list[int]) -> None:
            progress.advance_all()
            self.check_usable()  # one of those may have failed
            patience.tick()
            self._sit_out(patience, call, lambda: missing, lambda: where)
            patience.nap()

        self._book.agreeing = text
        try:
            known = self.agreement.exchange(call, text, data, waiting)
        except MismatchError as error:
            if self.agreement.torn:
                self.give_up(call, error)
            self._book.count(text)
            raise
        except TransportError as error:
            self._raise(call, failure_of(error, self.dead()))
        except HpcollError as error:
            self._raise(call, error)
        except BaseException as error:  # such as KeyboardInterrupt
            self.give_up(call, TransportError(f"{where}: interrupted by {type(error).__name__}"))
            raise
        finally:
            self._book.agreeing = None
        self._book.agree(call, text)
        return known

    def watch(self, flight: progress.Flight) -> None:
        """See to a flight that waits: letters, reports, warning, time limit.

        Raises
        ------
        HpcollError
            If it can't end well.
        """
        run, patience = flight.run, flight.patience
        patience.tick()
        row = run.position
        if row != flight.row:
            flight.row = row
            patience.moved()
        if self.size > 1:
            try:
                self.agreement.look()
            except TransportError as error:
                raise failure_of(error, self.dead()) from None
            self.agreement.judge(flight.call)
        where = self.where(flight.name)
        self._sit_out(patience, flight.call, run.waits_for, lambda: f"{where} step {run.step}")

    def _sit_out(
        self,
        patience: Patience,
        call: int,
        missing: Callable[[], list[int]],
        where: Callable[[], str],
    ) -> None:
        """After a while of waiting tell the others, warn, or fail."""
        if self.size > 1:
            dead = self.dead() if patience.look_is_due() else []
            if dead:
                raise failure_of(TransportError(f"{where()}: the process has gone"), dead)
            if patience.report_is_due(self.settings.stall_s):
                self.agreement.report(call, missing())

        def text(waited: str) -> str:
            ranks = missing()
            who = f"rank {rank_words(ranks)}" if ranks else "other ranks"
            known = trail(self.agreement.said.reports, self.rank, call, ranks)
            return f"{where()}: waited {waited} for {who}" + (f" ({known})" if known else "")

        patience.complain(self.settings.warn_s, text)

    def dead(self) -> list[int]:
        """The ranks that are known to have died."""
        found = set(self.mailbox.failed())
        if self.channel is not None:
            found.update(self.channel.dead_peers())
        return sorted(found)

    def where(self, name: str) -> str:
        """``rank 3/8 allreduce/ring``."""
        return f"rank {self.rank}/{self.size} {name}"

    def error_of(self, code: int, run: Run, name: str) -> HpcollError:
        """The error for an engine's code."""
        if code == words.UNUSABLE:
            return TransportError(f"this communicator can't be used any more: {self.unusable}")
        if code == words.UNREADABLE:
            text, failed = "the memory of another rank can't be read", []
        else:
            text, failed = self.channel.explain_error(words.MPI_ERROR - code)
        where = f"{self.where(name)} step {run.step}"
        return failure_of(TransportError(f"{where}: {text}"), failed)

    def fail(self, flight: progress.Flight, error: HpcollError) -> None:
        """End a flight, and with it the communicator: its messages are half-way."""
        self._kept.append((flight.run, flight.keep))
        self.give_up(flight.call, error)
        flight.finish(error)
        for other in [f for f in progress.flights if f.session is self]:
            self._kept.append((other.run, other.keep))
            other.finish(TransportError(f"given up, because another call failed: {error}"))

    def give_up(self, call: int, error: HpcollError) -> None:
        """Make the communicator unusable and tell the others; its buffers stay alive."""
        if self.unusable is None:
            first = min((f.call for f in progress.flights if f.session is self), default=call)
            self.agreement.give_up(min(first, call), call, error)
            self.spoil(str(error))

    def spoil(self, reason: str) -> None:
        """Make the communicator unusable for this process."""
        self.unusable = reason
        self._book.stop()

    def leave(self) -> None:
        """Tell the others that this rank ends."""
        if self.unusable is None and self.size > 1:
            self.agreement.leave(self.calls)

    def close(self) -> None:
        """Free everything, once what was started has ended; collective.

        Does nothing the second time. What can't be used any more is not freed: other
        ranks may not come.
        """
        if self.closed:
            return
        if self.unusable is None:
            for flight in [f for f in progress.flights if f.session is self]:
                progress.wait(flight)
            self.check_usable()
            self.agree("close of the communicator", None, self.settings.timeout_s)
            self.spoil("it was closed")
            self.channel.close()
            self.mailbox.close()
        self.closed = True

    def _raise(self, call: int, error: HpcollError) -> NoReturn:
        self.give_up(call, error)
        raise error from None
