"""What is measured side by side at one size: algorithms, their callers and their rivals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hpcoll.bench.data import Case
from hpcoll.bench.gloo import GlooGroup, gloo_in_place
from hpcoll.bench.measure import Arrays, Contender, ratios
from hpcoll.bench.options import BenchOptions
from hpcoll.bench.results import Row, bandwidths
from hpcoll.bench.versus import CompiledCaller, mpi4py_caller
from hpcoll.errors import ConfigError, TransportUnavailable
from hpcoll.kernels.dtypes import dtype_name
from hpcoll.runtime.native import native_mpi_names, native_refuses
from hpcoll.schedule.collectives import COLLECTIVES

SYMMETRIC_NOTE = (
    "memory: private arrays, and arrays on the ranks' shared heaps (Communicator.empty)"
)


@dataclass
class Entry:
    """An algorithm, run as a plan and, where it is alone, also called without one.

    Attributes
    ----------
    plan : Contender
        Gives the times of the row.
    caller : Contender or None
        Gives its ``call_us``.
    memory : str
        As in the row.
    """

    plan: Contender
    caller: Contender | None
    memory: str


@dataclass
class Lineup:
    """All that is measured at one size.

    Attributes
    ----------
    case : Case
        The size.
    entries : list of Entry
        A row each.
    rivals : list of Contender
        What they are compared with; the first gives the ratio, a second the compiled
        caller's.
    """

    case: Case
    entries: list[Entry]
    rivals: list[Contender]

    def contenders(self) -> list[Contender]:
        """All of them, in the order of their turns."""
        callers = [e.caller for e in self.entries if e.caller is not None]
        return [*(e.plan for e in self.entries), *self.rivals, *callers]

    def rows(self, options: BenchOptions, transport: str) -> list[Row]:
        """The rows, once all have been measured."""
        return [self._row(entry, options, transport) for entry in self.entries]

    def _row(self, entry: Entry, options: BenchOptions, transport: str) -> Row:
        case, ours, caller = self.case, entry.plan, entry.caller
        algbw, busbw = bandwidths(case.base, case.nbytes, ours.time_us, case.size)
        row = Row(
            collective=case.name,
            bytes=case.nbytes,
            dtype=dtype_name(case.dtype),
            op=case.op.name if case.op else "none",
            root=case.root if COLLECTIVES[case.base].rooted else -1,
            in_place=options.in_place,
            algorithm=ours.name,
            transport=transport,
            iterations=ours.calls,
            time_us=ours.time_us,
            min_us=ours.min_us,
            p95_us=ours.p95_us,
            algbw_GBps=algbw,
            busbw_GBps=busbw,
            wrong=ours.wrong + sum(c.wrong for c in [*self.rivals, *([caller] if caller else [])]),
            call_us=caller.time_us if caller else None,
            warmup=ours.warmups,
            memory=entry.memory,
        )
        if not self.rivals:
            return row
        ratio, low, high = ratios(self.rivals[0], ours)
        row = replace(
            row,
            versus=options.versus,
            versus_us=self.rivals[0].time_us,
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
        )
        for compiled in self.rivals[1:]:
            row = replace(
                row,
                compiled_versus_us=compiled.time_us,
                compiled_ratio=ratios(compiled, ours)[0],
            )
        return row


class Contenders:
    """Makes line-ups on the ranks of a communicator.

    Parameters
    ----------
    comm : Communicator
        Runs the algorithms.
    native : mpi4py.MPI.Comm
        The same ranks, for the library's own collective.
    options : BenchOptions
        What is compared with what.
    """

    def __init__(self, comm: Any, native: Any, options: BenchOptions) -> None:
        self.comm, self.native, self.options = comm, native, options
        self._lowered = comm.native_collectives()
        self._gloo: GlooGroup | None = None
        if options.versus == "gloo":
            self._gloo = GlooGroup(native, one_node=len(comm.topology.nodes) == 1)

    def check(self, case: Case) -> None:
        """Refuse what can't be measured; every rank must, before the first line-up.

        Raises
        ------
        ConfigError
            On all ranks.
        """
        if self.options.symmetric and self.comm.transport != "shm":
            route = self.comm.explain("allreduce", nbytes=8).transport
            raise ConfigError(
                f"--symmetric needs ranks that share memory, and the transport is {route}"
            )
        if self._gloo is not None:
            self._gloo.check(case, in_place=self.options.in_place)

    def notes(self, case: Case) -> list[str]:
        """Lines for the head of the table: how calls differ that are compared."""
        notes = [SYMMETRIC_NOTE] if self.options.symmetric else []
        if self._gloo is not None:
            notes += self._gloo.notes(case.base, self.options.in_place)
        return notes

    def close(self) -> None:
        """End what was opened for the rivals; collective."""
        if self._gloo is not None:
            self._gloo.close()

    def line_up(self, case: Case, algorithms: tuple[str, ...]) -> Lineup:
        """What is to be measured for a case; every rank must."""
        private = Arrays.of(case, in_place=self.options.in_place)
        memories = {"private": private}
        if self.options.symmetric:
            memories["shared"] = self._shared(case)
        entries = []
        for name in algorithms:
            for memory, arrays in memories.items():
                plan = self._plan(case, arrays, name)
                caller = None
                if len(algorithms) == 1:
                    caller = Contender("call", self._caller(case, arrays, plan.name), arrays)
                entries.append(Entry(plan, caller, memory))
        return Lineup(case, entries, self._rivals(case, private))

    def _shared(self, case: Case) -> Arrays:
        """Arrays on the shared heaps; if one rank has no room for them, raise on all."""
        arrays: Arrays | None = None
        reason = None
        try:
            arrays = Arrays.of(case, in_place=self.options.in_place, empty=self.comm.empty)
        except TransportUnavailable as error:
            reason = str(error)
        told = enumerate(self.native.allgather(reason))
        failed = next((f"rank {rank}: {text}" for rank, text in told if text), None)
        if arrays is None or failed:
            raise TransportUnavailable(f"--symmetric: {failed}")
        return arrays

    def _plan(self, case: Case, arrays: Arrays, algorithm: str) -> Contender:
        x, out, options = self._arguments(case, arrays)
        plan = self.comm.plan(case.name, x, out, algorithm=algorithm, **options)
        return Contender(plan.algorithm, plan, arrays)

    def _rivals(self, case: Case, arrays: Arrays) -> list[Contender]:
        options, gloo = self.options, self._gloo
        if options.versus is None or (gloo is None and not _has_native(case)):
            return []
        rule = _native_in_place if gloo is None else gloo_in_place
        in_place = rule(case.base, options.in_place)
        if in_place != options.in_place:
            arrays = Arrays.of(case, in_place=in_place)
        if gloo is not None:
            return [Contender("gloo", gloo.caller(case, arrays), arrays)]
        here = (case, arrays.source, arrays.target)
        native = mpi4py_caller(self.native, *here, in_place=in_place)
        compiled = CompiledCaller(self._lowered, *here, in_place=in_place)
        return [Contender("mpi4py", native, arrays), Contender("compiled", compiled, arrays)]

    def _caller(self, case: Case, arrays: Arrays, algorithm: str) -> Any:
        """The collective as an application calls it."""
        x, out, options = self._arguments(case, arrays)
        method = getattr(self.comm, case.name)
        if case.base == "barrier":
            return lambda: method(algorithm=algorithm)
        if case.name == "alltoallv":
            counts = options.pop("counts")
            return lambda: method(x, counts, out=out, algorithm=algorithm, **options)
        return lambda: method(x, out=out, algorithm=algorithm, **options)

    def _arguments(self, case: Case, arrays: Arrays) -> tuple[Any, Any, dict[str, Any]]:
        options: dict[str, Any] = {}
        x: Any = arrays.source
        out: Any = arrays.target
        if case.base == "barrier":
            return None, None, {}
        if case.op is not None:
            options["op"] = case.op
        if COLLECTIVES[case.base].rooted:
            options["root"] = case.root
            if case.base in ("broadcast", "scatter") and case.rank != case.root:
                x = None
            if case.base in ("reduce", "gather") and case.rank != case.root:
                out = None
        if case.name == "alltoallv":
            options["counts"] = case.rows[case.rank]
        elif case.name != case.base:
            options["counts"] = case.rows
        return x, out, options


def _has_native(case: Case) -> bool:
    """Whether the library has this collective over this dtype at all."""
    op, dtype = case.op, dtype_name(case.dtype)
    if op is None:
        return True
    if op.name == "avg" or native_mpi_names(dtype, op) is None:
        return False
    # What only NaN would show does not matter here: there is none in the data.
    return op.name in ("min", "max") or native_refuses(case.base, dtype, op) is None


def _native_in_place(base: str, in_place: bool) -> bool:
    """Whether the native call runs in place beside ours.

    MPI's broadcast always does; the others in the list have no form in which the
    result lies where hpcoll's does.
    """
    if base == "broadcast":
        return True
    return in_place and base not in ("reduce_scatter", "alltoall", "gather", "scatter")
