"""Run a bench: start the ranks if this is no MPI job, measure, print, draw."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from hpcoll.bench import launch, table
from hpcoll.bench.contenders import Contenders
from hpcoll.bench.data import Case, make_case
from hpcoll.bench.measure import BLOCKS, Meter
from hpcoll.bench.options import BenchOptions
from hpcoll.bench.results import Info, Results, Row, save_csv, save_json
from hpcoll.bench.sync import NodeBarrier
from hpcoll.config import settings
from hpcoll.errors import ConfigError, RegistryError
from hpcoll.kernels.dtypes import DTYPES, dtype_name
from hpcoll.runtime.bootstrap import library_version, mpi
from hpcoll.schedule import registry
from hpcoll.schedule.collectives import collective_named
from hpcoll.schedule.ops import BUILTIN, Op
from hpcoll.selection import unfit
from hpcoll.version import __version__

OPTIONS_VARIABLE = "HPCOLL__BENCH"
WRONG = 1

NATIVE_SETTING = re.compile(
    r"OMPI_MCA_(btl|pml|mtl|osc|coll\w*|mpi_yield_when_idle|hwloc_base_binding_policy|rmaps\w*)"
    r"|MPIR_CVAR_\w+|UCX_\w+|I_MPI_\w+|FI_PROVIDER"
)
"""Variables that change how the MPI library runs; its launcher sets many more."""


def main(options: BenchOptions) -> int:
    """Run a bench; return the exit status: 1 if any element was wrong.

    Raises
    ------
    HpcollError
        If it can't run.
    """
    if launch.in_mpi_job():
        return Bench(options).run()
    ranks = options.ranks or max(2, os.cpu_count() or 1)
    command, environment = launch.launcher(ranks)
    environment[OPTIONS_VARIABLE] = json.dumps(asdict(options))
    process = subprocess.Popen(
        [*command, sys.executable, "-m", "hpcoll.bench.rank"], env=environment
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        # The launcher got the signal too, and ends its ranks.
        process.wait()
        raise


def options_from_environment() -> BenchOptions:
    """The options that the starting process gave to its ranks."""
    given = json.loads(os.environ[OPTIONS_VARIABLE])
    lists = {k: tuple(v) for k, v in given.items() if isinstance(v, list)}
    return BenchOptions(**{**given, **lists})


class Bench:
    """One bench on the ranks of this job.

    Parameters
    ----------
    options : BenchOptions
        What to measure.
    """

    def __init__(self, options: BenchOptions) -> None:
        from hpcoll.communicator import Communicator

        for file in options.load:
            registry.load_file(file)
        self.options = options
        module = mpi()
        self.world = module.COMM_WORLD
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()
        if options.ranks is not None and options.ranks != self.size:
            raise ConfigError(f"--ranks {options.ranks}: this MPI job has {self.size} ranks")
        self.kind = collective_named(options.collective)
        if self.kind.rooted and options.root >= self.size:
            raise ConfigError(f"--root {options.root}: there are ranks 0 to {self.size - 1}")
        self.dtype = DTYPES[options.dtype]
        self.op: Op | None = BUILTIN[options.op] if self.kind.reduces else None
        crowded = self._pin()
        self.comm = Communicator(transport=options.transport)
        self.algorithms = self._algorithms()
        self.native = self.world.Dup()
        one_node = len(self.comm.topology.nodes) == 1
        self.meet = NodeBarrier(self.native, one_node=one_node, crowded=crowded)
        self.meter = Meter(self.native, self.meet, options.iterations, options.warmup)
        self.contenders = Contenders(self.comm, self.native, options)
        self.contenders.check(self._case(options.sizes[0]))

    def run(self) -> int:
        """Measure all sizes; return the exit status."""
        options, chief = self.options, self.rank == 0
        info = self._info()
        start = time.monotonic()
        if chief:
            table.print_header(
                info, versus=options.versus, symmetric=options.symmetric, notes=self._notes()
            )
        rows: list[Row] = []
        for nbytes in options.sizes:
            for row in self._measure(nbytes, self.algorithms):
                rows.append(row)
                self._print(row)
        if options.algorithms == ("all",) and len(self.algorithms) > 1:
            rows += self._confirm(rows)
        wrong = sum(row.wrong for row in rows)
        if chief:
            table.print_footer(rows, time.monotonic() - start)
            self._save(Results(info, tuple(rows)))
        self.contenders.close()
        self.meet.close()
        self.native.Free()
        self.comm.close()
        return WRONG if wrong else 0

    def _confirm(self, rows: list[Row]) -> list[Row]:
        """Measure the fastest algorithm of each size once more."""
        if self.rank == 0:
            print("#\n# fastest of each size, measured again:", flush=True)
        confirmed = []
        for nbytes in dict.fromkeys(row.bytes for row in rows):
            # Times are those of the slowest rank, so all ranks see the same winner.
            best = min((r for r in rows if r.bytes == nbytes), key=lambda r: r.time_us)
            for row in self._measure(nbytes, (best.algorithm,)):
                confirmed.append(replace(row, confirms=True))
                self._print(row)
        return confirmed

    def _print(self, row: Row) -> None:
        if self.rank == 0:
            table.print_row(row, versus=self.options.versus, symmetric=self.options.symmetric)

    def _measure(self, nbytes: int, algorithms: tuple[str, ...]) -> list[Row]:
        """Measure algorithms at one size, with what they are compared with between them."""
        lineup = self.contenders.line_up(self._case(nbytes), algorithms)
        self.meter.run(lineup.contenders())
        return lineup.rows(self.options, self.comm.transport)

    def _case(self, nbytes: int) -> Case:
        return make_case(
            self.options.collective, nbytes, self.size, self.rank, self.options.root, self.dtype,
            self.op,
        )  # fmt: skip

    def _algorithms(self) -> tuple[str, ...]:
        """The algorithms to measure: for "all", every one that can serve."""
        asked = self.options.algorithms
        if asked != ("all",):
            return asked
        usable = []
        for a in registry.algorithms(self.kind.name):
            reason = unfit(
                a, self.size, dtype=dtype_name(self.dtype), op=self.op, root=self.options.root,
                topology=self.comm.topology,
            )  # fmt: skip
            if reason is None:
                usable.append(a.full_name)
            elif self.rank == 0:
                print(f"# {a.spec} left out: {reason}", flush=True)
        if not usable:
            raise RegistryError(f"no algorithm serves {self.kind.name} of {self.options.dtype}")
        return tuple(usable)

    def _pin(self) -> bool:
        """Bind this rank to a core of its own where possible; whether ranks are too many."""
        module = mpi()
        node = self.world.Split_type(module.COMM_TYPE_SHARED)
        mine = node.Get_rank()
        allowed = np.zeros(max(os.cpu_count() or 1, *os.sched_getaffinity(0)) + 1, np.int32)
        allowed[list(os.sched_getaffinity(0))] = 1
        node.Allreduce(module.IN_PLACE, allowed, op=module.MAX)
        cores = np.flatnonzero(allowed).tolist()
        crowded = node.Get_size() > len(cores)
        node.Free()
        if len(os.sched_getaffinity(0)) > 1 or crowded:
            os.sched_setaffinity(0, {cores[mine % len(cores)]})
        return bool(crowded)

    def _info(self) -> Info:
        config = settings()
        native = {k: v for k, v in sorted(os.environ.items()) if NATIVE_SETTING.fullmatch(k)}
        bound = np.empty(self.size, np.int64)
        self.world.Allgather(np.array([min(os.sched_getaffinity(0))], np.int64), bound)
        native["binding"] = ",".join(map(str, bound))
        return Info(
            hpcoll=__version__,
            mpi=library_version(),
            ranks=self.size,
            nodes=len(self.comm.topology.nodes),
            cpu=_cpu(),
            settings={"transport": self.comm.transport, "engine": config.engine},
            native_settings=native,
            load=os.getloadavg()[0],
        )

    def _notes(self) -> list[str]:
        calls = self.options.iterations
        how = f"{calls} calls" if calls else f"{BLOCKS} blocks of calls"
        first = f"{how} an algorithm and size, interleaved; source rewritten before each call"
        return [first, *self.contenders.notes(self._case(self.options.sizes[0]))]

    def _save(self, results: Results) -> None:
        options = self.options
        if options.json:
            save_json(results, options.json)
        if options.csv:
            save_csv(results, options.csv)
        if options.plot:
            from hpcoll.bench.plot import draw

            draw([(self.options.collective, results)], options.plot)
            print(f"# plot: {options.plot}", flush=True)


def _cpu() -> str:
    """The processor's name and the number of cores."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"
