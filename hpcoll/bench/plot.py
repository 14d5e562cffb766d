"""The picture of a bench: latency and bandwidth against message size."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcoll.bench.curves import Crossover, Line, crossovers, lines_of
from hpcoll.bench.results import Results
from hpcoll.config import format_size
from hpcoll.errors import ConfigError

FORMATS = (".png", ".pdf", ".svg")

# Okabe and Ito's colours, which colour-blind people can tell apart; black is native.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")
_NATIVE = "#222222"
_BANDS = 3
_LABELLED_CROSSOVERS = 8


def check_plot(path: str | Path) -> None:
    """Refuse a picture that can't be drawn, before anything is measured.

    Raises
    ------
    ConfigError
        If matplotlib is missing or the file's ending is none of png, pdf, svg.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a picture's name must end in {', '.join(FORMATS)}")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'hpcoll[plot]'") from None


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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.6 * len(panels)), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(panels), 1, squeeze=False)[:, 0]
    for part, (name, lines) in zip(parts, panels, strict=True):
        _draw_collective(part, name, lines, sources)
    figure.savefig(path)


def _draw_collective(
    figure: Any, collective: str, lines: list[Line], sources: Sequence[tuple[str, Results]]
) -> None:
    left, right = figure.subplots(1, 2)
    bus = any(p.busbw > 0 for line in lines for p in line.points)
    colours = {
        name: i
        for i, name in enumerate(
            dict.fromkeys(line.name for line in lines if line.kind == "algorithm")
        )
    }
    bands = len(colours) * len(sources) <= _BANDS
    for line in lines:
        sizes = [p.nbytes for p in line.points]
        style = _style(line, colours)
        left.plot(sizes, [p.time_us for p in line.points], label=line.label, **style)
        if bands and line.kind == "algorithm":
            left.fill_between(
                sizes,
                [max(p.min_us, p.time_us / 100) for p in line.points],
                [p.p95_us for p in line.points],
                color=style["color"],
                alpha=0.12,
                linewidth=0,
            )
        right.plot(sizes, [p.busbw if bus else p.algbw for p in line.points], **style)
    for axes in (left, right):
        _scale(axes, [p.nbytes for line in lines for p in line.points])
    left.set_ylabel("time of a call (µs)")
    right.set_ylabel(f"{'bus' if bus else 'algorithm'} bandwidth (GB/s, 10⁹ bytes)")
    what = "line: median" + (", band: minimum to 95 %" if bands else "")
    left.set_title(f"latency: lower is better ({what})", fontsize=10)
    right.set_title("bandwidth: higher is better", fontsize=10)
    # A single slow call would squeeze all lines: bands may leave the picture.
    times = [p.time_us for line in lines for p in line.points]
    left.set_ylim(min(times) / 1.6, max(times) * 1.6)
    _mark_crossovers((left, right), crossovers(lines))
    figure.suptitle(_title(collective, sources), fontsize=11)
    figure.legend(
        loc="outside lower center",
        ncols=len(sources) if 1 < len(sources) <= 4 else min(len(lines), 4),
        frameon=False,
        fontsize=9,
    )


def _style(line: Line, colours: dict[str, int]) -> dict[str, Any]:
    dash = _DASHES[line.source % len(_DASHES)]
    if line.kind == "compiled":
        return {"color": "#999999", "linestyle": dash, "linewidth": 1.2, "zorder": 2}
    base = {"linestyle": dash, "linewidth": 1.7, "markersize": 4.5, "zorder": 3}
    if line.source:
        base["markerfacecolor"] = "white"
    if line.kind == "versus":
        return {**base, "color": "#666666", "marker": "+", "markersize": 8}
    if line.kind == "native":
        return {**base, "color": _NATIVE, "marker": "x", "markersize": 5.5}
    i = colours[line.name]
    marker = _MARKERS[(i + i // len(_COLOURS)) % len(_MARKERS)]
    return {**base, "color": _COLOURS[i % len(_COLOURS)], "marker": marker}


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
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _mark_crossovers(axes: Sequence[Any], found: list[Crossover]) -> None:
    left = axes[0]
    for number, c in enumerate(found):
        for a in axes:
            a.axvline(c.nbytes, color="#999999", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
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
