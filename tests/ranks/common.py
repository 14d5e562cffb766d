"""What the rank scripts share: they write what happened to files that the test reads."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["HPCOLL__TEST_FOLDER"])
_start = time.monotonic()


def rank_and_size() -> tuple[int, int]:
    """This process's place in the job."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()


def say(event: str, **values: Any) -> None:
    """Write a line that the test reads as a dictionary."""
    line = {"event": event, "pid": os.getpid(), "t": time.time(), **values}
    with (FOLDER / f"rank{rank_and_size()[0]}").open("a") as out:
        out.write(json.dumps(line) + "\n")


@contextmanager
def noted(event: str = "error") -> Iterator[None]:
    """Write down the error that a block raises, and how long it took; pass on nothing."""
    start = time.monotonic()
    try:
        yield
    except Exception as error:
        took = time.monotonic() - start
        say(event, kind=type(error).__name__, text=str(error), took=took)
    else:
        say(event, kind=None, text="", took=time.monotonic() - start)


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait for something without MPI."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the test's condition did not come")
        time.sleep(0.005)


def flag(name: str) -> None:
    """Tell the other ranks something, without MPI."""
    (FOLDER / f"flag-{name}").touch()


def wait_flag(name: str) -> None:
    """Wait for a flag."""
    until((FOLDER / f"flag-{name}").exists)
