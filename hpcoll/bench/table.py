"""The table of a bench, in the columns of nccl-tests, a row as soon as it is measured."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from hpcoll.bench.results import Info, Row, wrong_elements

_ITEMSIZES = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}

_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("size", "(B)", 12),
    ("count", "(elements)", 12),
    ("type", "", 10),
    ("redop", "", 6),
    ("root", "", 5),
    ("time", "(us)", 10),
    ("algbw", "(GB/s)", 8),
    ("busbw", "(GB/s)", 8),
    ("#wrong", "", 7),
    ("min", "(us)", 10),
    ("p95", "(us)", 10),
)
_MEMORY_COLUMN = ("memory", "", 9)
_ABSENT = "N/A"


def itemsize(dtype: str) -> int:
    """Bytes of an element of the named dtype."""
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    return _ITEMSIZES.get(dtype) or (max(int(digits) // 8, 1) if digits.isdecimal() else 1)


def print_header(
    info: Info,
    *,
    versus: str | None = None,
    symmetric: bool = False,
    notes: Sequence[str] = (),
    file: TextIO | None = None,
) -> None:
    """Print what the measurements are made with, as ``#`` lines, and the headings.

    Parameters
    ----------
    info : Info
        Versions, ranks, processor, settings.
    versus : str, optional
        What is compared with; adds its columns.
    symmetric : bool
        Adds the column of the arrays' memory.
    notes : sequence of str
        Further lines: how many calls, where the ranks are bound.
    file : text file, optional
        Standard output by default.
    """
    lines = [
        f"hpcoll {info.hpcoll}, {info.mpi}",
        f"{info.ranks} rank{'s' * (info.ranks != 1)} on {info.nodes} "
        f"node{'s' * (info.nodes != 1)}, {info.cpu}"
        + (f", load {info.load:.2f}" if info.load is not None else ""),
    ]
    if info.settings:
        lines.append(f"settings: {_pairs(info.settings)}")
    if info.native_settings:
        lines.append(f"MPI's settings: {_pairs(info.native_settings)}")
    lines += notes
    lines.append("time: median of the best block of calls, slowest rank; GB/s = 1e9 bytes a second")
    if versus:
        lines.append(f"ratio: time of {versus} / time; above 1 the algorithm is faster")
    lines.append("")
    columns = _COLUMNS + _further_columns(versus, symmetric)
    for place in (0, 1):
        names = "".join(f"{c[place]:>{c[2]}}" for c in columns[: len(_COLUMNS)])
        algorithm = f"  {'algorithm' if place == 0 else '':<38}"
        more = "".join(f"{c[place]:>{c[2]}}" for c in columns[len(_COLUMNS) :])
        # The mark takes the first column's place, which is always blank.
        lines.append((names + algorithm + more)[2:].rstrip())
    _write("\n".join(f"# {line}".rstrip() for line in lines), file)


def print_row(
    row: Row, *, versus: str | None = None, symmetric: bool = False, file: TextIO | None = None
) -> None:
    """Print one row, with the columns that `print_header` has for the same options."""
    cells = [
        str(row.bytes),
        str(row.bytes // itemsize(row.dtype)),
        row.dtype,
        row.op,
        str(row.root),
        significant(row.time_us),
        significant(row.algbw_GBps),
        significant(row.busbw_GBps),
        str(row.wrong),
        significant(row.min_us),
        significant(row.p95_us),
    ]
    text = "".join(f"{c:>{w}}" for c, (_, _, w) in zip(cells, _COLUMNS, strict=True))
    text += f"  {row.algorithm:<38}"
    more = [row.memory] if symmetric else []
    if versus:
        more += [significant(row.versus_us), _ratio(row.ratio), _ratio(row.compiled_ratio)]
    columns = _further_columns(versus, symmetric)
    text += "".join(f"{c:>{w}}" for c, (_, _, w) in zip(more, columns, strict=False))
    _write(text.rstrip(), file)


def print_footer(
    rows: Sequence[Row], seconds: float | None = None, *, file: TextIO | None = None
) -> None:
    """Print the mean bus bandwidth, how the comparison went, and the wrong elements."""
    lines: list[str] = []
    if rows:
        mean = sum(r.busbw_GBps for r in rows) / len(rows)
        lines.append(f"average bus bandwidth: {significant(mean)} GB/s")
    for label, values in (
        ("ratio", [r.ratio for r in rows if r.ratio]),
        ("compiled ratio", [r.compiled_ratio for r in rows if r.compiled_ratio]),
        ("time of private / shared", _of_memories(rows)),
    ):
        if values:
            middle = math.exp(sum(math.log(v) for v in values) / len(values))
            reached = sum(v >= 1 for v in values)
            lines.append(
                f"{label}: at least 1 in {reached} of {len(values)} rows, "
                f"from {min(values):.2f} to {max(values):.2f}, geometric mean {middle:.2f}"
            )
    wrong = wrong_elements(rows)
    bad = sum(r.wrong > 0 for r in rows)
    lines.append(f"wrong elements: {wrong}" + (f", in {bad} rows: FAILED" if wrong else ""))
    if seconds is not None:
        lines.append(f"total time: {seconds:.1f} s")
    _write("\n".join(f"# {line}" for line in lines), file)


def significant(value: float | None) -> str:
    """A number with four digits or two decimals, whichever shows more; never 1e3 style."""
    if value is None:
        return _ABSENT
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 10 else f"{value:.3f}" if value >= 0.1 else f"{value:.4f}"


def _of_memories(rows: Sequence[Row]) -> list[float]:
    """For each pair of rows that differ in memory only, how the times compare."""
    times: dict[tuple[str, int, bool], dict[str, float]] = {}
    for r in rows:
        times.setdefault((r.algorithm, r.bytes, r.confirms), {})[r.memory] = r.time_us
    return [t["private"] / t["shared"] for t in times.values() if len(t) == 2 and t["shared"] > 0]


def _ratio(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:.2f}"


def _further_columns(versus: str | None, symmetric: bool) -> tuple[tuple[str, str, int], ...]:
    """Those after the algorithm; a compiled caller there is of MPI only."""
    memory = (_MEMORY_COLUMN,) if symmetric else ()
    if versus is None:
        return memory
    compiled = (("compiled", "ratio", 9),) if versus == "mpi" else ()
    return (*memory, (versus, "(us)", 10), ("ratio", "", 7), *compiled)


def _pairs(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in settings.items())


def _write(text: str, file: TextIO | None) -> None:
    # Flushed, so that a row is seen when it is measured.
    print(text, file=file or sys.stdout, flush=True)
