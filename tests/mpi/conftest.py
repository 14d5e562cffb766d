"""Keeps the ranks in step: a test that fails on one rank fails on all, and rank 0 reports."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HPCOLL_TIMEOUT_S", "60")
sys.path.insert(0, str(Path(__file__).parent))

import pytest
from mpi4py import MPI

import hpcoll
from hpcoll import communicator, config

WORLD = MPI.COMM_WORLD.Dup()
RANK, SIZE = WORLD.rank, WORLD.size


class Shared:
    """The communicator of a module's tests; a new one after a test that failed."""

    comm: hpcoll.Communicator | None = None
    module: Any = None
    said = False
    screen = io.StringIO()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let rank 0 alone write to the screen."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RANK and reporter is not None:
        reporter._tw._file = Shared.screen


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print what another rank has to say that rank 0 has not said."""
    session = getattr(config, "_session_status", 0)
    if RANK and session not in (0, 5) and not Shared.said:
        print(f"rank {RANK}:\n{Shared.screen.getvalue()}", file=sys.stderr, flush=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember the status; close the last communicator."""
    session.config._session_status = exitstatus  # type: ignore[attr-defined]
    if Shared.comm is not None and not exitstatus:
        Shared.comm.close()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Tell all ranks how a test ended, so that it ends alike on all."""
    text, skipped, result = "", "", None
    try:
        result = yield
    except pytest.skip.Exception as skip:
        skipped = str(skip)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        text = str(pytest.ExceptionInfo.from_exception(error).getrepr(style="short"))
        text = text or repr(error)
        if Shared.comm is not None:  # those who wait in a call need not wait for its time limit
            Shared.comm._session.refuse(hpcoll.HpcollError("its test failed"))
    said = WORLD.allgather((text, skipped))
    if any(t for t, _ in said):
        Shared.comm, Shared.said = None, True
        pytest.fail("\n".join(_failures([t for t, _ in said])), pytrace=False)
    if any(s for _, s in said):
        pytest.skip("; ".join(sorted({s for _, s in said if s})))
    return result


def _failures(texts: list[str]) -> Iterator[str]:
    """The failures of all ranks, equal ones once."""
    for text in dict.fromkeys(filter(None, texts)):
        yield f"rank {', '.join(str(r) for r, t in enumerate(texts) if t == text)}:\n{text}"


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> hpcoll.Communicator:
    """All ranks; shared by the tests of a module, so that its caches fill up."""
    if Shared.module is not request.module:
        if Shared.comm is not None:
            Shared.comm.close()
        Shared.comm, Shared.module = None, request.module
    if Shared.comm is None:
        try:
            Shared.comm = hpcoll.Communicator()
        except Exception as error:
            pytest.exit(f"no communicator can be made: {error!r}", returncode=3)
    return Shared.comm


@pytest.fixture
def comm_with(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., hpcoll.Communicator]:
    """Make communicators with other settings than the environment's."""

    def make(**changes: Any) -> hpcoll.Communicator:
        changed = replace(config.settings(), **changes)
        with monkeypatch.context() as patch:
            patch.setattr(communicator, "settings", lambda: changed)
            return hpcoll.Communicator()

    return make
