"""Measured results: their data, the JSON and CSV files, and the bandwidth formulas.

Times are microseconds a call, the slowest rank's; bandwidths GB/s of 10**9 bytes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hpcoll.errors import ConfigError

_BUSBW_SHARE = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: one algorithm at one size.

    Attributes
    ----------
    collective, dtype, op, algorithm, transport : str
        What was run; ``op`` is ``"none"`` where nothing is reduced.
    bytes : int
        Message size: of allgather, reduce_scatter, gather and scatter the total; of
        alltoall what a rank sends in all.
    root, iterations, wrong : int
        Root (-1 where there is none), measured calls, wrong elements of all ranks.
    in_place : bool
        Whether the result overwrote the input.
    time_us, min_us, p95_us : float
        Median of the best block of calls; minimum and 95th percentile of all.
    algbw_GBps, busbw_GBps : float
        Bandwidths as nccl-tests has them.
    versus : str or None
        What ran interleaved: ``"mpi"`` or ``"gloo"``.
    versus_us, ratio : float or None
        Its median, called through mpi4py or torch.distributed, and that over
        ``time_us``.
    compiled_versus_us, compiled_ratio : float or None
        The same for a compiled caller of MPI.
    call_us : float or None
        Median of the collective's call on the communicator, without a plan.
    warmup : int or None
        Calls before the measured ones.
    ratio_low, ratio_high : float or None
        Quartiles of the ratio, taken block by block.
    confirms : bool
        Whether this repeats the measurement of the fastest algorithm.
    memory : str
        Where the arrays of the call were: ``"private"``, or ``"shared"`` on the ranks'
        shared heaps.
    """

    collective: str
    bytes: int
    dtype: str
    op: str
    root: int
    in_place: bool
    algorithm: str
    transport: str
    iterations: int
    time_us: float
    min_us: float
    p95_us: float
    algbw_GBps: float  # noqa: N815
    busbw_GBps: float  # noqa: N815
    wrong: int
    versus: str | None = None
    versus_us: float | None = None
    ratio: float | None = None
    compiled_versus_us: float | None = None
    compiled_ratio: float | None = None
    call_us: float | None = None
    warmup: int | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    confirms: bool = False
    memory: str = "private"


@dataclass(frozen=True, slots=True)
class Info:
    """What the measurements were made with.

    Attributes
    ----------
    hpcoll, mpi, cpu : str
        Version, MPI library, processor.
    ranks, nodes : int
        How many.
    settings, native_settings : dict
        hpcoll's settings; those of the MPI library that differ from its defaults.
    load : float or None
        Load average of the machine before the run.
    """

    hpcoll: str
    mpi: str
    ranks: int
    nodes: int
    cpu: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    native_settings: Mapping[str, Any] = field(default_factory=dict)
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """A bench: what it was made with, and its rows."""

    info: Info
    rows: tuple[Row, ...] = ()


def busbw_factor(collective: str, ranks: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth by.

    The bytes that a rank must move for each byte of the message; 0 for one rank, which
    moves none. For scan and exscan, which nccl-tests lacks, 1.
    """
    if ranks <= 1 or collective == "barrier":
        return 0.0
    base = collective
    if collective.endswith("v") and collective[:-1] in _BUSBW_SHARE:
        base = collective[:-1]
    if base == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if base in _BUSBW_SHARE else 1.0


def bandwidths(collective: str, nbytes: int, time_us: float, ranks: int) -> tuple[float, float]:
    """The algorithm bandwidth and the bus bandwidth, in GB/s of 10**9 bytes."""
    algbw = nbytes / (time_us * 1e3) if time_us > 0 else 0.0
    return algbw, algbw * busbw_factor(collective, ranks)


def save_json(results: Results, path: str | Path) -> None:
    """Write a JSON file."""
    content = {**asdict(results.info), "rows": [asdict(r) for r in results.rows]}
    text = json.dumps(content, indent=1, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def save_csv(results: Results, path: str | Path) -> None:
    """Write a CSV file: the fields of a row after the number of ranks and nodes."""
    names = [f.name for f in fields(Row)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["ranks", "nodes", *names])
        for row in results.rows:
            values = asdict(row)
            cells = ["" if values[n] is None else values[n] for n in names]
            writer.writerow([results.info.ranks, results.info.nodes, *cells])


def load_json(path: str | Path) -> Results:
    """Read a JSON file of `save_json`; keys that are not known are passed over.

    Raises
    ------
    ConfigError
        If the file can't be read, is cut off, lacks something, or has a value of the
        wrong type; names the file and the place.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text, parse_constant=_refuse_constant)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror or error}") from None
    except json.JSONDecodeError as error:
        end = " (the file may be cut off)" if error.pos >= len(text.rstrip()) else ""
        raise ConfigError(
            f"{path}: is not JSON: line {error.lineno} column {error.colno}: {error.msg}{end}"
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: is not a file of results: nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise ConfigError(f"{path}: is not a file of results: it has no list 'rows'")
    info = Info(**_fields(content, Info, f"{path}"))
    if info.ranks < 1:
        raise ConfigError(f"{path}: ranks is {info.ranks}, must be 1 or more")
    rows: list[Row] = []
    for i, item in enumerate(content["rows"]):
        where = f"{path}: row {i}"
        if not isinstance(item, dict):
            raise ConfigError(f"{where}: is {_shown(item)}, not an object")
        row = Row(**_fields(item, Row, where))
        if row.bytes < 0 or row.time_us < 0:
            raise ConfigError(f"{where}: bytes and time_us can't be negative")
        rows.append(row)
    return Results(info, tuple(rows))


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "Mapping[str, Any]": ((dict,), "an object"),
}


def _fields(content: Mapping[str, Any], kind: type[Info] | type[Row], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for f in fields(kind):
        wanted = str(f.type)
        optional = wanted.endswith(" | None")
        types, name = _KINDS[wanted.removesuffix(" | None")]
        if f.name not in content:
            if f.default is not MISSING:
                continue
            raise ConfigError(f"{where}: lacks {f.name!r}")
        value = content[f.name]
        if value is None and optional:
            continue
        right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if right and float in types:
            right = abs(value) < 1e300
        if not right:
            raise ConfigError(f"{where}: {f.name} is {_shown(value)}, must be {name}")
        values[f.name] = float(value) if float in types else value
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number that can be measured")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def wrong_elements(rows: Iterable[Row]) -> int:
    """The number of wrong elements in all rows."""
    return sum(r.wrong for r in rows)
