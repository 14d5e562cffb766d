"""A call bound to its arrays: run once, or again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hpcoll.errors import ConfigError
from hpcoll.runtime import progress, words
from hpcoll.runtime.arrays import Array, address_of
from hpcoll.runtime.engines import CompiledEngine
from hpcoll.runtime.run import Run
from hpcoll.runtime.session import Session


class Binding:
    """A run with its arrays.

    Parameters
    ----------
    session : Session
        The communicator's runtime.
    run : Run
        The recipe's run.
    name : str
        ``collective/algorithm``.
    source, target : ndarray or None
        Contiguous arrays that the engine reads and writes.
    result : ndarray or None
        What the user gets.
    pack, unpack : tuple of ndarray, optional
        (to, from) to copy before the run, and after it.
    """

    __slots__ = ("name", "pack", "result", "run", "session", "source", "target", "unpack")

    def __init__(
        self,
        session: Session,
        run: Run,
        name: str,
        source: Array | None,
        target: Array | None,
        result: Array | None,
        pack: tuple[Array, Array] | None = None,
        unpack: tuple[Array, Array] | None = None,
    ) -> None:
        self.session = session
        self.run = run
        self.name = name
        self.source = source
        self.target = target
        self.result = result
        self.pack = pack
        self.unpack = unpack
        run.bind(address_of(source), address_of(target))

    def start(self, timeout_s: float) -> Request:
        """Start the run."""
        self.session.check_usable()
        if self.pack is not None:
            np.copyto(*self.pack)
        engine = self.session.engine
        with progress.lock:
            engine.begin(self.run)
            flight = progress.Flight(self.session, self.run, self.name, (self,), timeout_s)
            flight.advance(0)
        return Request(flight, self)

    def execute(self, timeout_s: float) -> Array | None:
        """Run to the end."""
        if progress.flights or self.pack is not None:
            return self.start(timeout_s).wait()
        code = self.session.engine.execute(self.run)
        if code != words.DONE:
            self.rest(code, timeout_s)
        return self.finish()

    def rest(self, code: int, timeout_s: float) -> None:
        """Bring a run to its end that the engine has left."""
        if code == words.UNUSABLE:
            self.session.check_usable()
        flight = progress.Flight(self.session, self.run, self.name, (self,), timeout_s)
        if code == words.PENDING:
            progress.wait(flight)
        else:
            self.session.fail(flight, self.session.error_of(code, self.run, self.name))
        if flight.error is not None:
            raise flight.error

    def finish(self) -> Array | None:
        """Unpack, and return the result."""
        if self.unpack is not None:
            np.copyto(*self.unpack)
        return self.result


class Request:
    """A started collective.

    Attributes
    ----------
    done : bool
        Whether it has ended, as of the last test or wait.
    """

    __slots__ = ("_binding", "_finished", "_flight", "_release")

    def __init__(self, flight: progress.Flight, binding: Binding) -> None:
        self._flight = flight
        self._binding = binding
        self._finished = False
        self._release: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, as of the last test or wait."""
        return self._flight.done

    def on_end(self, release: Callable[[], None]) -> Request:
        """Call `release` once the result has been taken."""
        self._release = release
        return self

    def test(self) -> bool:
        """Advance everything in flight; return whether this call has ended.

        Raises
        ------
        HpcollError
            What ended it, if it failed.
        """
        if not self._flight.done:
            progress.advance_all()
        if self._flight.done:
            self._take()
        return self._flight.done

    def wait(self, timeout: float | None = None) -> Array | None:
        """Wait for the end and return the result, as often as asked.

        Parameters
        ----------
        timeout : float, optional
            Seconds of waiting, whatever this rank computes in between; that of the call
            by default.

        Raises
        ------
        CollectiveTimeout
            If it takes longer.
        MismatchError, PeerFailure, TransportError
            If it failed.
        """
        if timeout is not None:
            self._flight.patience.timeout_s = check_timeout(timeout)
        progress.wait(self._flight)
        return self._take()

    def _take(self) -> Array | None:
        if self._flight.error is not None:
            raise self._flight.error
        if not self._finished:
            self._finished = True
            self._binding.finish()
            if self._release is not None:
                self._release()
                self._release = None
        return self._binding.result


class Plan:
    """A persistent collective: arrays, algorithm and messages fixed once.

    Calling it runs it and returns the result; `start` returns a `Request`. Every
    rank must run it equally often, in the same order as its other calls.

    Attributes
    ----------
    algorithm : str
        The algorithm that runs, with its tunables.
    result : ndarray or None
        Where the result will be.
    address : int
        Address of the run's table, for callers in compiled code.
    """

    def __init__(self, binding: Binding, algorithm: str, timeout_s: float) -> None:
        self.algorithm = algorithm
        self.result = binding.result
        self._binding = binding
        self._timeout_s = timeout_s
        self._last: Request | None = None
        engine = binding.session.engine
        run = binding.run
        self._entry: Callable[..., int] = partial(_execute, engine, run)
        self._arguments: tuple[int, ...] = ()
        if isinstance(engine, CompiledEngine):
            brief = run.word(words.BRIEF)
            self._entry = engine.briefly if brief else engine.entry
            self._arguments = (run.address, 0, 0) if brief else (run.address,)
        self.address = run.address
        self._bare = binding.pack is None and binding.unpack is None
        self._flights = progress.flights

    def __call__(self) -> Array | None:
        """Run to the end; return the result."""
        if self._flights or not self._bare:
            return self.start().wait()
        code = self._entry(*self._arguments)
        if code:
            self._binding.rest(code, self._timeout_s)
        return self.result

    def start(self) -> Request:
        """Start it.

        Raises
        ------
        ConfigError
            If it is still running from the last start.
        """
        if self._last is not None and not self._last.done:
            raise ConfigError(f"plan {self.algorithm} is still running: wait for it first")
        self._last = self._binding.start(self._timeout_s)
        return self._last


def _execute(engine: Any, run: Run) -> int:
    code: int = engine.execute(run)
    return code


def check_timeout(timeout: float) -> float:
    """Check a time limit in seconds.

    Raises
    ------
    ConfigError
        If it is not a positive number.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ConfigError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return float(timeout)
