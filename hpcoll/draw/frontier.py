"""The picture of a comparison: rounds against bytes of all algorithms, with the lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcoll.draw.style import COLOURS, GRID, INK, PALE, check_plot, new_figure, open_axes


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
    """The algorithms that none beats in both rounds and bytes."""
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
    axes.plot(*zip(*edge, strict=True), color=COLOURS[0], linewidth=1.5, zorder=2)
    lines = []
    for number, (at, names) in enumerate(spots.items(), start=1):
        colour = COLOURS[0] if at in edge else COLOURS[1]
        axes.plot(*at, "o", color=colour, markersize=17, markeredgecolor="white", zorder=3)
        axes.annotate(
            str(number), at, color="white", ha="center", va="center", fontsize=9, weight="bold",
            zorder=4,
        )  # fmt: skip
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
    figure.savefig(path)


def _draw_bounds(axes: Any, least: tuple[int, float]) -> None:
    rounds, volume = least
    if rounds > 0:
        axes.axvline(rounds, color=PALE, linestyle="--", zorder=1)
        axes.annotate(
            f"least rounds: {rounds}", (rounds, 1), xycoords=("data", "axes fraction"),
            xytext=(4, -2), textcoords="offset points", va="top", rotation=90, color=INK,
            fontsize=9,
        )  # fmt: skip
    if volume > 0:
        axes.axhline(volume, color=PALE, linestyle="--", zorder=1)
        axes.annotate(
            f"least bytes: {volume:.4g} n", (1, volume), xycoords=("axes fraction", "data"),
            xytext=(0, -4), textcoords="offset points", ha="right", va="top", color=INK,
            fontsize=9,
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
        axes.text(1, at, f"{rounds} rounds, {volume:.4g} n", fontsize=9, ha="right", va="top")
        for name in names:
            axes.text(0.05, at, name, fontsize=9, va="top", color=INK)
            at -= height
    text = "blue: none is better in both rounds and bytes"
    axes.text(0.05, at - height, text, fontsize=9, va="top", color=COLOURS[0])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
