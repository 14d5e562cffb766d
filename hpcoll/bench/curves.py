"""The curves of results: which lines a picture has, and where they cross."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hpcoll.bench.results import Results, Row, bandwidths

CLEAR_LEAD = 0.95
"""A line takes the lead when it needs less than this part of the leader's time."""


@dataclass(frozen=True, slots=True)
class Point:
    """One size of a line: times in us, bandwidths in GB/s."""

    nbytes: int
    time_us: float
    min_us: float
    p95_us: float
    algbw: float
    busbw: float


@dataclass(frozen=True, slots=True)
class Line:
    """One algorithm of one file.

    Attributes
    ----------
    label : str
        For the legend.
    name : str
        The algorithm alone; lines of one name have one colour.
    source : int
        Number of the file.
    kind : str
        ``"algorithm"``; ``"native"``, the library's own collective run as an
        algorithm; ``"versus"``, called through mpi4py, or gloo's; ``"compiled"``,
        called by compiled code.
    points : tuple of Point
        By size.
    """

    label: str
    name: str
    source: int
    kind: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where another line becomes the fastest: the size, from which line, to which."""

    nbytes: float
    time_us: float
    before: str
    after: str


def lines_of(sources: Sequence[tuple[str, Results]], collective: str) -> list[Line]:
    """The lines of one collective, in the order of the files and their rows.

    Points of 0 bytes are left out: they have no place on a logarithmic axis.
    """
    told = _what_differs([r for _, results in sources for r in results.rows])
    lines: list[Line] = []
    for number, (label, results) in enumerate(sources):
        prefix = f"{label}: " if len(sources) > 1 else ""
        rows = [r for r in results.rows if r.collective == collective and r.bytes > 0]
        groups: dict[str, list[Row]] = {}
        swept = _swept(rows)
        for row in rows:
            groups.setdefault(_name(row, told, swept), []).append(row)
        ranks = results.info.ranks
        for name, group in groups.items():
            kind = "native" if name.split(",")[0] == "native" else "algorithm"
            lines.append(Line(prefix + name, name, number, kind, _points(group, ranks)))
        for kind, suffix in (("versus", ""), ("compiled", ", compiled caller")):
            timed = [(r, t) for r in rows if (t := _versus(r, kind)) is not None]
            if timed:
                rival = timed[0][0].versus or "mpi"
                name = rival if rival == "gloo" else f"native ({rival}{suffix})"
                lines.append(
                    Line(
                        prefix + name, name, number, kind, _versus_points(timed, collective, ranks)
                    )
                )
    return lines


def crossovers(lines: Sequence[Line]) -> list[Crossover]:
    """Where the fastest line changes, going up in size.

    Lines that differ by less than 5 % do not take the lead from each other.
    """
    racing = [line for line in lines if line.kind != "compiled"]
    times = [{p.nbytes: p.time_us for p in line.points} for line in racing]
    leader: int | None = None
    found: list[Crossover] = []
    sizes = sorted(set().union(*times)) if times else []
    for i, size in enumerate(sizes):
        present = [k for k in range(len(racing)) if size in times[k]]
        best = min(present, key=lambda k: times[k][size])
        if leader is None or size not in times[leader]:
            leader = best
            continue
        if times[best][size] >= CLEAR_LEAD * times[leader][size]:
            continue
        earlier = [s for s in sizes[:i] if s in times[leader] and s in times[best]]
        at, time_us = _crossing(times[leader], times[best], [*earlier, size])
        found.append(Crossover(at, time_us, racing[leader].label, racing[best].label))
        leader = best
    return found


def _crossing(
    before: dict[int, float], after: dict[int, float], sizes: list[int]
) -> tuple[float, float]:
    """The last crossing of two lines, straight on logarithmic axes."""
    for low, high in zip(sizes[-2::-1], sizes[:0:-1], strict=True):
        gap_low = math.log(before[low] / after[low])
        gap_high = math.log(before[high] / after[high])
        if gap_low <= 0 < gap_high:
            part = -gap_low / (gap_high - gap_low)
            return (
                math.exp(_between(math.log(low), math.log(high), part)),
                math.exp(_between(math.log(before[low]), math.log(before[high]), part)),
            )
    return float(sizes[0]), before[sizes[0]]


def _between(a: float, b: float, part: float) -> float:
    return a + (b - a) * part


def _what_differs(rows: Sequence[Row]) -> list[str]:
    names = ("transport", "dtype", "op", "in_place", "root", "memory")
    return [n for n in names if _varies(rows, n)]


def _varies(rows: Sequence[Row], name: str) -> bool:
    values: dict[str, set[object]] = {}
    for r in rows:
        values.setdefault(r.collective, set()).add(getattr(r, name))
    return any(len(v) > 1 for v in values.values())


def _unsegmented(algorithm: str) -> str:
    """An algorithm without its number of segments: what was chosen, and not asked for."""
    name, _, tunables = algorithm.partition(":")
    rest = [t for t in tunables.split(",") if t and not t.startswith("segments=")]
    return f"{name}:{','.join(rest)}" if rest else name


def _swept(rows: Sequence[Row]) -> set[str]:
    """The algorithms of which several numbers of segments were measured at one size."""
    found: dict[tuple[str, int], set[str]] = {}
    for r in rows:
        found.setdefault((_unsegmented(r.algorithm), r.bytes), set()).add(r.algorithm)
    return {name for (name, _), specs in found.items() if len(specs) > 1}


def _name(row: Row, told: Sequence[str], swept: set[str]) -> str:
    name = _unsegmented(row.algorithm)
    name = row.algorithm if name in swept else name
    parts = [name.removeprefix(f"{row.collective}/")]
    for n in told:
        if n == "in_place":
            parts.append("in place" if row.in_place else "out of place")
        else:
            parts.append(f"root {row.root}" if n == "root" else str(getattr(row, n)))
    return ", ".join(parts)


def _points(rows: Sequence[Row], ranks: int) -> tuple[Point, ...]:
    by_size: dict[int, list[Row]] = {}
    for r in rows:
        if r.time_us > 0:
            by_size.setdefault(r.bytes, []).append(r)
    points: list[Point] = []
    for size, group in sorted(by_size.items()):
        time_us = median(r.time_us for r in group)
        points.append(
            Point(
                size,
                time_us,
                min(r.min_us for r in group),
                max(r.p95_us for r in group),
                *bandwidths(group[0].collective, size, time_us, ranks),
            )
        )
    return tuple(points)


def _versus(row: Row, kind: str) -> float | None:
    value = row.versus_us if kind == "versus" else row.compiled_versus_us
    return value if value is not None and value > 0 else None


def _versus_points(
    timed: Sequence[tuple[Row, float]], collective: str, ranks: int
) -> tuple[Point, ...]:
    by_size: dict[int, list[float]] = {}
    for row, time_us in timed:
        by_size.setdefault(row.bytes, []).append(time_us)
    points: list[Point] = []
    for size, values in sorted(by_size.items()):
        t = median(values)
        points.append(Point(size, t, t, t, *bandwidths(collective, size, t, ranks)))
    return tuple(points)
