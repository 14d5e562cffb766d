"""The picture of a comparison: rounds against bytes of all algorithms, with the lower bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcoll.draw.style import COLOURS, GRID, INK, PALE, check_plot, new_figure, open_axes

_CIRCLE = 17.0
"""Diameter of a numbered circle, in points."""
_ASIDE = [(0.0, 0.0)] + [
    (x * k * _CIRCLE * 1.1, y * k * _CIRCLE * 1.1)
    for k in (1, 2, 3)
    for x, y in ((0.8, 0.8), (0, 1), (1, 0), (-0.8, 0.8), (0, -1), (-1, 0))
]
"""Where a circle may lie beside its point: best up and right, off the frontier."""


@dataclass(frozen=True, slots=True)
class Point:
    """One algorithm.

    Attributes
    ----------
    name : str
        Its name.
    rounds : int
        Rounds.
    volume, reductions : float
        Bytes moved and bytes reduced by the busiest rank, in units of n.
    """

    name: str
    rounds: int
    volume: float
    reductions: float


def frontier(points: Sequence[Point]) -> set[str]:
    """The algorithms that no other one beats.

    One beats another that needs no fewer rounds and no fewer bytes, and more of either.
    """
    return {
        p.name
        for p in points
        if not any(
            q.rounds <= p.rounds
            and q.volume <= p.volume
            and (q.rounds, q.volume) != (p.rounds, p.volume)
            for q in points
        )
    }


def draw_frontier(
    title: str, points: Sequence[Point], least: tuple[int, float], path: str | Path
) -> None:
    """Draw rounds against bytes.

    Parameters
    ----------
    title : str
        What is compared.
    points : sequence of Point
        The algorithms.
    least : (int, float)
        The lower bounds of rounds and of bytes in units of n.
    path : str or Path
        File to write; its ending says the format.

    Raises
    ------
    ConfigError
        If matplotlib is missing or the ending is none of png, pdf, svg.
    """
    check_plot(path)
    best = frontier(points)
    spots: dict[tuple[int, float], list[str]] = {}
    for p in sorted(points, key=lambda p: (p.rounds, p.volume, p.name)):
        spots.setdefault((p.rounds, p.volume), []).append(p.name)
    figure = new_figure(12, 6.2)
    axes, key = figure.subplots(1, 2, width_ratios=(3, 2))
    key.set_axis_off()
    _draw_bounds(axes, least)
    edge = [at for at, names in spots.items() if names[0] in best]
    # Steps: between two of them more rounds than the first's save no bytes.
    axes.plot(
        *zip(*edge, strict=True), color=COLOURS[0], linewidth=1.5, drawstyle="steps-post", zorder=2
    )
    lines = []
    for number, (at, names) in enumerate(spots.items(), start=1):
        colour = COLOURS[0] if at in edge else COLOURS[1]
        axes.plot(*at, "o", color=colour, markersize=5, zorder=3)
        lines.append((number, colour, names, at))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("rounds (a rank sends one message and receives one in each)")
    axes.set_ylabel("bytes through the busiest rank, one way (units of n)")
    axes.grid(color=GRID)
    axes.margins(0.1)
    open_axes(axes)
    figure.suptitle(title)
    _draw_key(key, lines)
    # Where points are on the paper is known once all else has its place.
    figure.draw_without_rendering()
    numbers = sorted(lines, key=lambda line: line[3] not in edge)
    for line, aside in zip(numbers, _places(axes, [at for *_, at in numbers]), strict=True):
        _draw_number(axes, line, aside)
    figure.savefig(path)


def _places(axes: Any, points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """How far aside of its point each circle lies, in points: no two meet."""
    scale = 72 / axes.figure.dpi
    spots = [tuple(scale * v for v in axes.transData.transform(at)) for at in points]
    taken: list[tuple[float, float]] = []
    found: list[tuple[float, float]] = []
    for i, (x, y) in enumerate(spots):
        others = spots[:i] + spots[i + 1 :]
        tried = [(x + dx, y + dy) for dx, dy in _ASIDE]
        hidden = [_hidden(at, taken, others if k else []) for k, at in enumerate(tried)]
        best = hidden.index(min(hidden))
        found.append(_ASIDE[best])
        taken.append(tried[best])
    return found


def _hidden(
    at: tuple[float, float], circles: Sequence[tuple[float, float]], points: Sequence[Any]
) -> float:
    """How far a circle would cover others, or points that are not its own."""
    over = [_CIRCLE + 1 - math.dist(at, c) for c in circles]
    over += [_CIRCLE / 2 + 3 - math.dist(at, p) for p in points]
    return max(0.0, *over, 0.0)


def _draw_number(
    axes: Any, line: tuple[int, str, list[str], tuple[int, float]], aside: tuple[float, float]
) -> None:
    """A numbered circle at a point, or beside it with a line to it."""
    from matplotlib.transforms import ScaledTranslation

    number, colour, _, at = line
    moved = ScaledTranslation(aside[0] / 72, aside[1] / 72, axes.figure.dpi_scale_trans)
    place = axes.transData + moved
    if any(aside):
        axes.annotate(
            "", at, xytext=aside, textcoords="offset points", zorder=2.5,
            arrowprops={"arrowstyle": "-", "color": colour, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    axes.plot(
        *at, "o", color=colour, markersize=_CIRCLE, markeredgecolor="white", zorder=4,
        transform=place, clip_on=False,
    )  # fmt: skip
    axes.text(
        *at, str(number), color="white", ha="center", va="center", fontsize=9, weight="bold",
        zorder=5, transform=place,
    )  # fmt: skip


def _draw_bounds(axes: Any, least: tuple[int, float]) -> None:
    """The lower bounds as lines, named outside the axes, where no point hides the name."""
    rounds, volume = least
    look = {"textcoords": "offset points", "color": INK, "fontsize": 9}
    if rounds > 0:
        axes.axvline(rounds, color=PALE, linestyle="--", zorder=1)
        axes.annotate(
            f"least rounds: {rounds}", (rounds, 1), xycoords=("data", "axes fraction"),
            xytext=(0, 3), ha="center", va="bottom", **look,
        )  # fmt: skip
    if volume > 0:
        axes.axhline(volume, color=PALE, linestyle="--", zorder=1)
        axes.annotate(
            f"least bytes:\n{volume:.4g} n", (1, volume), xycoords=("axes fraction", "data"),
            xytext=(4, 0), ha="left", va="center", **look,
        )  # fmt: skip


def _draw_key(axes: Any, lines: Sequence[tuple[int, str, list[str], tuple[int, float]]]) -> None:
    """The names beside the picture, by number: where many share a point no label would fit."""
    rows = sum(len(names) for _, _, names, _ in lines)
    height = 1 / max(rows + 2, 22)
    at = 1.0
    for number, colour, names, (rounds, volume) in lines:
        axes.text(
            0.02, at, str(number), fontsize=9, weight="bold", ha="right", va="top", color=colour
        )
        axes.text(
            1,
            at,
            f"{rounds} round{'s' * (rounds != 1)}, {volume:.4g} n",
            fontsize=9,
            ha="right",
            va="top",
        )
        for name in names:
            axes.text(0.05, at, name, fontsize=9, va="top", color=INK)
            at -= height
    text = "blue: no other one saves rounds or bytes\nand costs no more of the other"
    axes.text(0.05, at - height, text, fontsize=9, va="top", color=COLOURS[0])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
