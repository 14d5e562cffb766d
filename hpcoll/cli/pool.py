"""Proofs of many (algorithm, number of ranks) pairs, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

from hpcoll.errors import HpcollError
from hpcoll.schedule import registry
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import Proof, prove

SMALL_WORK = 20_000
"""Sum of ranks squared below which starting processes takes longer than the proofs."""


def default_jobs() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prove_all(
    tasks: Sequence[tuple[str, int]],
    load: Sequence[str],
    jobs: int,
    advance: Callable[[], None],
    ranks_per_node: int | None = None,
) -> list[Proof]:
    """Prove each (algorithm, number of ranks); the results are in the order of the tasks.

    Parameters
    ----------
    tasks : sequence of (str, int)
        Algorithms, with tunables, and numbers of ranks.
    load : sequence of str
        Files of algorithms that are needed.
    jobs : int
        Number of processes.
    advance : callable
        Called after each proof.
    ranks_per_node : int, optional
        So many consecutive ranks share a node; by default several placements are proved.

    Raises
    ------
    HpcollError
        If a process died, for instance for want of memory.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1 or sum(size * size for _, size in tasks) < SMALL_WORK:
        proofs: list[Proof] = []
        for task in tasks:
            proofs.append(_prove(task, ranks_per_node))
            advance()
        return proofs
    # Largest first: the last to end are then small ones.
    order = sorted(range(len(tasks)), key=lambda i: -tasks[i][1])
    results: dict[int, Proof] = {}
    # Processes are spawned, not forked: a progress bar has a thread.
    context = multiprocessing.get_context("spawn")
    previous = _exit_on_terminate()
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (tuple(load),))
    try:
        with _signals_held():
            futures = {pool.submit(_prove, tasks[i], ranks_per_node): i for i in order}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            advance()
        pool.shutdown()
    except BrokenProcessPool:
        raise HpcollError(
            "a process that proved schedules died, perhaps for want of memory: "
            "try fewer --ranks or --jobs 1"
        ) from None
    finally:
        if len(results) < len(tasks):
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    return [results[i] for i in range(len(tasks))]


def _prove(task: tuple[str, int], ranks_per_node: int | None) -> Proof:
    spec, size = task
    topology = Topology.blocks(size, ranks_per_node) if ranks_per_node else None
    return prove(registry.find(spec), size, topology=topology)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back while processes start, which inherit that.

    Ctrl-C reaches the whole group, and only the parent is to answer it. A parent that
    ended in the middle of starting a process would leave it with half its orders.
    """
    # Starting the tracker lifts the block, so it must be there before.
    resource_tracker.ensure_running()
    held = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def _start_worker(load: tuple[str, ...]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # how the parent ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for file in load:
        registry.load_file(file)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _exit_on_terminate() -> signal._HANDLER:
    """Let SIGTERM end this process by SystemExit, so that workers are ended too."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    return signal.signal(signal.SIGTERM, end)
