"""One process compiles, the others wait and load what it made.

Without this, every rank of a job that starts on a cold cache compiles everything.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

PATIENCE_S = 300.0
"""How long to wait for another process before compiling all the same."""

_threads = threading.RLock()
_holding = False


@contextmanager
def compiling(name: str, function: Callable[..., Any], stamp: str = "") -> Iterator[None]:
    """Enclose a compilation that numba caches on disk.

    On a cold cache one process at a time is let in, and the others wait until it has
    left; then they come in too and find the cache filled. Once a marker file says
    that it is filled nobody waits. Locks are a help, never a condition: where there
    are none (a read-only folder, a file system without them), or where the holder takes
    longer than `PATIENCE_S`, the caller just compiles.

    Parameters
    ----------
    name : str
        What is compiled; one name for one set of functions.
    function : callable
        A function of the module in which they are defined, plain or compiled by numba:
        it tells the cache folder, and a change of its source file voids the marker.
    stamp : str, optional
        Anything else that must be equal for the cache to be good.
    """
    global _holding
    marker = _marker(name, function)
    text = f"{_source_stamp(function)} {stamp}"
    if marker is None or _is_done(marker, text):
        yield
        return
    with _threads:
        # A lock inside a lock could wait for a process that waits for this one.
        lock = None if _holding else _acquire(marker, text)
        outer, _holding = _holding, _holding or lock is not None
        try:
            if lock is not None and marker.exists():
                _void(marker.parent, function)
            yield
            _mark(marker, text)
        finally:
            _holding = outer
            if lock is not None:
                os.close(lock)


def cache_folder(function: Callable[..., Any]) -> Path | None:
    """Return where numba caches a function, or None where it can't."""
    try:
        cache: Any = FunctionCache
        return Path(cache(_plain(function)).cache_path)
    except (RuntimeError, OSError):
        return None


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    plain: Callable[..., Any] = getattr(function, "py_func", function)
    return plain


def _marker(name: str, function: Callable[..., Any]) -> Path | None:
    folder = cache_folder(function)
    if folder is None:
        return None
    codegen = cpu_target.target_context.codegen().magic_tuple()
    versions = (numba.__version__, llvmlite.__version__, sys.version, codegen)
    digest = hashlib.blake2b(repr(versions).encode(), digest_size=8).hexdigest()
    safe = "".join(c if c.isalnum() else "-" for c in name)
    return folder / f"hpcoll-{safe}-{digest}.done"


def _source_stamp(function: Callable[..., Any]) -> str:
    try:
        status = os.stat(inspect.getfile(_plain(function)))
    except (OSError, TypeError):
        return ""
    return f"{status.st_mtime_ns} {status.st_size}"


def _is_done(marker: Path, text: str) -> bool:
    try:
        return marker.read_text() == text
    except OSError:
        return False


def _void(folder: Path, function: Callable[..., Any]) -> None:
    """Forget what was compiled of older sources: numba looks at one file, not at its imports."""
    try:
        for index in folder.glob(f"{Path(inspect.getfile(_plain(function))).stem}.*.nbi"):
            index.unlink(missing_ok=True)
    except (OSError, TypeError):
        return


def sources_stamp(*folders: Path) -> str:
    """What changes with any Python file in some folders."""
    files = sorted(file for folder in folders for file in folder.glob("*.py"))
    states = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    return hashlib.blake2b(repr(states).encode(), digest_size=8).hexdigest()


def _mark(marker: Path, text: str) -> None:
    draft = marker.with_suffix(f".{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(marker)
    except OSError:
        return


def _acquire(marker: Path, text: str) -> int | None:
    """Return a locked file, or None once the cache is filled or no lock can be had."""
    try:
        lock = os.open(marker.with_name("hpcoll.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    deadline = time.monotonic() + PATIENCE_S
    while not _is_done(marker, text) and time.monotonic() < deadline:
        try:
            # Not lockf: that lock is lost when any part of the process closes the file.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            break
        else:
            if _is_done(marker, text):
                break
            return lock
    os.close(lock)
    return None
