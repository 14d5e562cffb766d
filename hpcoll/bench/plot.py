"""The picture of a bench: latency and bandwidth against message size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcoll.bench.curves import Crossover, Line, crossovers, lines_of
from hpcoll.bench.results import Results
from hpcoll.config import format_size
from hpcoll.draw import style
from hpcoll.draw.style import check_plot
from hpcoll.errors import ConfigError

__all__ = ["check_plot", "draw"]

_DASHES = ("-", "--", ":", "-.")
_BANDS = 3
_LABELLED_CROSSOVERS = 8
_IN_COLOUR = 8
"""Up to so many algorithms all have a colour; of more, those that are fastest somewhere."""
_LABEL_POINTS = 7.5


def draw(sources: Sequence[tuple[str, Results]], path: str | Path) -> None:
    """Draw results: for each collective, latency and bandwidth against size.

    Parameters
    ----------
    sources : sequence of (str, Results)
        Results, with the label that tells several of them apart.
    path : str or Path
        File to write; its ending says the format.

    Raises
    ------
    ConfigError
        If matplotlib is missing or there is nothing to draw.
    """
    check_plot(path)
    names = list(dict.fromkeys(r.collective for _, results in sources for r in results.rows))
    panels = [(name, lines) for name in names if (lines := lines_of(sources, name))]
    panels = [(name, lines) for name, lines in panels if any(line.points for line in lines)]
    if not panels:
        raise ConfigError("nothing to draw: no row of more than 0 bytes")
    figure = style.new_figure(12, 5.6 * len(panels))
    parts = figure.subfigures(len(panels), 1, squeeze=False)[:, 0]
    for part, (name, lines) in zip(parts, panels, strict=True):
        _draw_collective(part, name, lines, sources)
    figure.savefig(path)


def _draw_collective(
    figure: Any, collective: str, lines: list[Line], sources: Sequence[tuple[str, Results]]
) -> None:
    left, right = figure.subplots(1, 2)
    bus = any(p.busbw > 0 for line in lines for p in line.points)
    colours = {name: i for i, name in enumerate(_in_colour(lines))}
    bands = len({x.name for x in lines if x.kind == "algorithm"}) * len(sources) <= _BANDS
    for line in lines:
        sizes = [p.nbytes for p in line.points]
        look = _style(line, colours)
        grey = line.kind == "algorithm" and line.name not in colours
        label = f"_{line.label}" if grey else line.label  # such labels are in no legend
        left.plot(sizes, [p.time_us for p in line.points], label=label, **look)
        if bands and line.kind == "algorithm":
            left.fill_between(
                sizes,
                [max(p.min_us, p.time_us / 100) for p in line.points],
                [p.p95_us for p in line.points],
                color=look["color"],
                alpha=0.12,
                linewidth=0,
            )
        right.plot(sizes, [p.busbw if bus else p.algbw for p in line.points], **look)
    for axes in (left, right):
        _scale(axes, [p.nbytes for line in lines for p in line.points])
    left.set_ylabel("time of a call (µs)")
    right.set_ylabel(f"{'bus' if bus else 'algorithm'} bandwidth (GB/s, 10⁹ bytes)")
    rest = [x for x in lines if x.kind == "algorithm" and x.name not in colours]
    what = "line: median" + (", band: minimum to 95 %" if bands else "")
    what += ", grey: nowhere the fastest algorithm" if rest else ""
    left.set_title(f"latency: lower is better ({what})", fontsize=10)
    right.set_title("bandwidth: higher is better", fontsize=10)
    # A single slow call would squeeze all lines: bands may leave the picture.
    times = [p.time_us for line in lines for p in line.points]
    left.set_ylim(min(times) / 1.6, max(times) * 1.6)
    _mark_crossovers((left, right), crossovers(lines))
    _label_grey(left, rest)
    figure.suptitle(_title(collective, sources), fontsize=11)
    figure.legend(
        loc="outside lower center",
        ncols=len(sources) if 1 < len(sources) <= 4 else min(len(lines), 4),
        frameon=False,
        fontsize=9,
    )


def _in_colour(lines: Sequence[Line]) -> list[str]:
    """The algorithms that have a colour, in the order of their lines."""
    names = dict.fromkeys(line.name for line in lines if line.kind == "algorithm")
    if len(names) <= _IN_COLOUR:
        return list(names)
    best: dict[int, tuple[float, str]] = {}
    for line in lines:
        if line.kind == "algorithm":
            for p in line.points:
                best[p.nbytes] = min(best.get(p.nbytes, (math.inf, "")), (p.time_us, line.name))
    fastest = {name for _, name in best.values()}
    return [name for name in names if name in fastest]


def _label_grey(axes: Any, lines: Sequence[Line]) -> None:
    """Name the grey lines at their right ends, one above the other where they are close."""
    ends = sorted(
        ((line.points[-1].time_us, line) for line in lines if line.points), key=lambda e: e[0]
    )
    if not ends:
        return
    low, high = axes.get_ylim()
    height = 288.0  # points, about
    at = [math.log(time_us / low) / math.log(high / low) * height for time_us, _ in ends]
    places = list(at)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + _LABEL_POINTS)
    top = height
    for i in reversed(range(len(places))):
        places[i] = min(places[i], top)
        top = places[i] - _LABEL_POINTS
    for (time_us, line), y, place in zip(ends, at, places, strict=True):
        axes.annotate(
            line.label,
            (line.points[-1].nbytes, time_us),
            xytext=(16, place - y),
            textcoords="offset points",
            va="center",
            fontsize=6,
            color=style.GREY,
            arrowprops={
                "arrowstyle": "-",
                "color": style.PALE,
                "linewidth": 0.5,
                "relpos": (0, 0.5),
                "shrinkB": 0,
            },
            annotation_clip=False,
        )


def _style(line: Line, colours: dict[str, int]) -> dict[str, Any]:
    dash = _DASHES[line.source % len(_DASHES)]
    if line.kind == "compiled":
        return {"color": style.PALE, "linestyle": dash, "linewidth": 1.2, "zorder": 2}
    if line.kind == "algorithm" and line.name not in colours:
        return {"color": style.PALE, "linestyle": dash, "linewidth": 0.7, "zorder": 1.5}
    base = {"linestyle": dash, "linewidth": 1.7, "markersize": 4.5, "zorder": 3}
    if line.source:
        base["markerfacecolor"] = "white"
    if line.kind == "versus":
        return {**base, "color": style.GREY, "marker": "+", "markersize": 8}
    if line.kind == "native":
        marker = "X" if line.name.endswith(", shared") else "x"
        return {**base, "color": style.INK, "marker": marker, "markersize": 5.5}
    i = colours[line.name]
    return {**base, "color": style.colour(i), "marker": style.marker(i)}


def _scale(axes: Any, sizes: list[int]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = min(sizes).bit_length() - 1, max(sizes).bit_length() - 1
    every = max(1, -(-(high - low) // 11))
    axes.xaxis.set_major_locator(FixedLocator([2**k for k in range(low, high + 2, every)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_size(round(x))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    axes.set_xlabel("message size (bytes; K, M, G: powers of 1024)")
    axes.grid(True, which="major", color=style.GRID, linewidth=0.7)
    style.open_axes(axes)


def _mark_crossovers(axes: Sequence[Any], found: list[Crossover]) -> None:
    left = axes[0]
    for number, c in enumerate(found):
        for a in axes:
            a.axvline(c.nbytes, color=style.PALE, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        left.plot([c.nbytes], [c.time_us], "o", color="none", markeredgecolor="#444444", ms=11)
        if number < _LABELLED_CROSSOVERS:
            # Where there is room: curves run from bottom left to top right.
            at_top = c.time_us < math.sqrt(math.prod(left.get_ylim()))
            left.annotate(
                f"{c.before} → {c.after}, {_about(c.nbytes)}",
                (c.nbytes, 0.98 if at_top else 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(-3, 0),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="top" if at_top else "bottom",
                fontsize=7.5,
                color="#444444",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
                zorder=5,
            )


def _about(nbytes: float) -> str:
    """A size between two measured ones, to two digits."""
    for unit, size in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if nbytes >= size:
            return (
                f"{nbytes / size:.2g}{unit}"
                if nbytes < 100 * size
                else f"{nbytes / size:.0f}{unit}"
            )
    return f"{nbytes:.0f}"


def _title(collective: str, sources: Sequence[tuple[str, Results]]) -> str:
    rows = [r for _, results in sources for r in results.rows if r.collective == collective]
    kinds = list(dict.fromkeys(r.dtype if r.op == "none" else f"{r.dtype} {r.op}" for r in rows))
    makers = list(
        dict.fromkeys(
            f"{s.info.ranks} rank{'s' * (s.info.ranks != 1)} on {s.info.nodes} "
            f"node{'s' * (s.info.nodes != 1)}, {s.info.mpi}"
            for _, s in sources
        )
    )
    cpus = list(dict.fromkeys(s.info.cpu for _, s in sources))
    first = f"{collective}, {', '.join(kinds[:3])}"
    if len(makers) == 1:
        return f"{first}, {makers[0]}\n{cpus[0] if len(cpus) == 1 else ''}".rstrip()
    told = "; ".join(
        f"{label}: {maker}" for (label, _), maker in zip(sources, makers, strict=False)
    )
    return f"{first}\n{told}" if len(makers) == len(sources) else first
