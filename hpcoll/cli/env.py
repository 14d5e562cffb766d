"""``hpcoll env``: the settings and the software that is in use."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import click

from hpcoll import config
from hpcoll.cli import output, values
from hpcoll.errors import ConfigError, TransportUnavailable
from hpcoll.runtime.bootstrap import both_mpis_warning
from hpcoll.version import __version__

PACKAGES = ("numpy", "numba", "mpi4py", "ml_dtypes", "matplotlib")
ASK_LIBRARY_S = 20.0
_ASK_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""


@click.command(
    short_help="Show the settings and the software in use.",
    epilog="Example: HPCOLL_TIMEOUT_S=60 hpcoll env",
)
@values.json_option
def command(as_json: bool) -> None:
    """Show all settings (HPCOLL_ variables) and the software that is in use.

    Exit status 2: a variable is unknown or has a value that can't be used.
    """
    rows = config.describe()
    strange = config.unknown()
    software = _software()
    warnings = [w for w in (both_mpis_warning(),) if w]
    if as_json:
        output.print_json(_as_json(rows, strange, software, warnings))
    else:
        output.print_table(
            ("variable", "value", "default", "meaning"),
            [
                (r.variable, f"!{r.current} (wrong)" if r.problem else r.current, r.default, r.doc)
                for r in rows
            ]
            + [(name, "!unknown", "", _meant(near)) for name, near in strange],
        )
        click.echo()
        output.print_table(("software", "version"), [(k, v or "none") for k, v in software.items()])
        for warning in warnings:
            click.echo(f"hpcoll: warning: {warning}", err=True)
    problems = [r.problem for r in rows if r.problem]
    problems += [values.unknown_text(*item) for item in strange]
    if problems:
        raise ConfigError("; ".join(problems))


def _meant(suggestion: str | None) -> str:
    return f"did you mean {suggestion}?" if suggestion else "no such setting"


def _software() -> dict[str, str | None]:
    found: dict[str, str | None] = {"hpcoll": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        found[name] = installed(name)
    found["MPI library"] = mpi_library()
    found["mpiexec"] = _mpiexec()
    return found


def installed(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def mpi_library() -> str | None:
    """The first line of what the MPI library says of itself, or why it can't be asked.

    Another process asks, without starting MPI: one that is broken can't harm this one.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_LIBRARY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_LIBRARY_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {ASK_LIBRARY_S:.0f} s"
    lines = [line.strip() for line in done.stdout.replace("\0", "").splitlines() if line.strip()]
    if done.returncode == 0 and lines:
        return " ".join(lines[0].split())
    errors = done.stderr.strip().splitlines()
    return f"can't be loaded: {errors[-1].strip() if errors else f'status {done.returncode}'}"


def _mpiexec() -> str | None:
    from hpcoll.bench.launch import find_mpiexec

    try:
        return find_mpiexec()
    except TransportUnavailable:
        return None


def _as_json(
    rows: list[config.Row],
    strange: list[tuple[str, str | None]],
    software: dict[str, str | None],
    warnings: list[str],
) -> dict[str, Any]:
    return {
        "settings": [r._asdict() for r in rows],
        "unknown": [{"variable": name, "suggestion": near} for name, near in strange],
        "software": software,
        "warnings": warnings,
    }
