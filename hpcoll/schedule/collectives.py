"""What each collective means: who holds which chunks before, and who must hold what after.

A reduction's chunk is right when every named rank's contribution is in it exactly
once; any other chunk is right when it is the named rank's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hpcoll.errors import ConfigError
from hpcoll.schedule.problem import Problem

Id: TypeAlias = "int | tuple[int, int]"


@dataclass(frozen=True, slots=True)
class Collective:
    """The kind of a collective.

    Attributes
    ----------
    name : str
        As in MPI, in lower case.
    reduces, rooted : bool
        Whether operands are combined; whether one rank is the root.
    owned : bool
        Whether each chunk belongs to one rank.
    """

    name: str
    reduces: bool = False
    rooted: bool = False
    owned: bool = False

    def inputs(self, p: Problem) -> Iterable[Id]:
        """The chunks that ``p.rank`` holds before."""
        match self.name:
            case "allreduce" | "reduce" | "reduce_scatter" | "scan" | "exscan":
                return range(p.chunks)
            case "allgather" | "gather":
                return p.owned(p.rank)
            case "broadcast" | "scatter":
                return range(p.chunks) if p.rank == p.root else ()
            case "alltoall":
                return [(p.rank, d) for d in range(p.size)]
        return ()

    def outputs(self, p: Problem) -> Iterable[Id]:
        """The chunks that ``p.rank`` must hold after."""
        match self.name:
            case "allreduce" | "allgather" | "broadcast" | "scan":
                return range(p.chunks)
            case "exscan":
                return range(p.chunks) if p.rank > 0 else ()
            case "reduce" | "gather":
                return range(p.chunks) if p.rank == p.root else ()
            case "reduce_scatter" | "scatter":
                return p.owned(p.rank)
            case "alltoall":
                return [(s, p.rank) for s in range(p.size)]
        return ()

    def contributors(self, p: Problem, chunk: Id) -> range:
        """The ranks whose contribution ``p.rank`` must find in an output chunk."""
        match self.name:
            case "allreduce" | "reduce" | "reduce_scatter":
                return range(p.size)
            case "scan":
                return range(p.rank + 1)
            case "exscan":
                return range(p.rank)
            case "broadcast" | "scatter":
                return range(p.root, p.root + 1)
            case "alltoall":
                assert isinstance(chunk, tuple)
                return range(chunk[0], chunk[0] + 1)
        assert isinstance(chunk, int)
        owner = next(r for r in range(p.size) if chunk in p.owned(r))
        return range(owner, owner + 1)

    def alias(self, p: Problem) -> dict[Id, Id]:
        """In place, which output chunk lies where each input chunk lies."""
        if self.name == "alltoall":
            return {(p.rank, d): (d, p.rank) for d in range(p.size)}
        outputs = set(self.outputs(p))
        return {c: c for c in self.inputs(p) if c in outputs}


COLLECTIVES: dict[str, Collective] = {
    c.name: c
    for c in (
        Collective("allreduce", reduces=True),
        Collective("allgather", owned=True),
        Collective("reduce_scatter", reduces=True, owned=True),
        Collective("alltoall"),
        Collective("broadcast", rooted=True),
        Collective("reduce", reduces=True, rooted=True),
        Collective("gather", rooted=True, owned=True),
        Collective("scatter", rooted=True, owned=True),
        Collective("scan", reduces=True),
        Collective("exscan", reduces=True),
        Collective("barrier"),
    )
}

VECTOR_FORMS = {
    "allgatherv": "allgather",
    "reduce_scatterv": "reduce_scatter",
    "alltoallv": "alltoall",
    "gatherv": "gather",
    "scatterv": "scatter",
}


def collective_named(name: str) -> Collective:
    """The collective of that name; a v-form is its base with other counts.

    Raises
    ------
    ConfigError
        If there is none.
    """
    found = COLLECTIVES.get(VECTOR_FORMS.get(name, name))
    if found is None:
        raise ConfigError(f"unknown collective {name!r}: use one of {', '.join(COLLECTIVES)}")
    return found
