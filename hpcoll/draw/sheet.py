"""The paper of a space-time diagram: its axes, the ranks' lines, nodes, phases and keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hpcoll.draw.messages import Run
from hpcoll.draw.style import COLOURS, GREY, GRID, INK, PALE

POINT = 1 / 72
"""Inches a point."""
GLYPH = 0.55 * 6.5 * POINT
"""About the width of a letter, in inches."""
_PALETTE = (*COLOURS, INK)
_NODE_SHADES = ("#EEF3F8", "#FAF3E8")


@dataclass(frozen=True, slots=True)
class Look:
    """What a picture says beside the messages.

    Attributes
    ----------
    title : str
        One line or several.
    size : int
        Number of ranks.
    root : int or None
        The root, where there is one.
    node_of : sequence of int
        Node number of each rank.
    chunks : int
        Number of chunks; for alltoall the number of ranks, which blocks go to.
    unit : str
        The size of a chunk, in words.
    pairs : bool
        Whether chunks are pairs of ranks.
    text : callable
        Chunks in words.
    """

    title: str
    size: int
    root: int | None
    node_of: Sequence[int]
    chunks: int
    unit: str
    pairs: bool
    text: Callable[[Sequence[Any]], str]


class Sheet:
    """Where things are: all lengths are inches, the axes' own data coordinates too."""

    def __init__(self, size: int, rounds: int, *, phases: bool, colours: bool) -> None:
        self.size, self.rounds = size, max(rounds, 1)
        self.row = min(0.6, max(0.16, 8.0 / size))
        self.column = min(1.5, max(0.26, 12.0 / self.rounds))
        self.wide, self.high = self.rounds * self.column, size * self.row
        self.left, self.right, self.top, self.bottom = 1.15, 0.9, 1.05 if phases else 0.65, 0.95
        self.bottom += 0.35 * colours
        self.width = max(self.wide + self.left + self.right, 8.5)
        self.left += (self.width - self.left - self.right - self.wide) / 2
        self.height = self.high + self.top + self.bottom

    def at(self, rank: float, time: float) -> tuple[float, float]:
        """Where a rank is at a time, in rounds."""
        return time * self.column, (rank + 0.5) * self.row


def frame(axes: Any, sheet: Sheet, look: Look) -> None:
    """Draw the axes: a line a rank, and one at each end of a round."""
    axes.set_xlim(0, sheet.wide)
    axes.set_ylim(sheet.high, 0)
    every = max(1, math.ceil(0.15 / sheet.row))
    shown = [r for r in range(look.size) if r % every == 0]
    if look.root is not None:
        # A neighbour's label would touch the root's.
        shown = [r for r in shown if not 0 < abs(r - look.root) < every]
        shown = sorted({*shown, look.root})
    axes.set_yticks(
        [sheet.at(r, 0)[1] for r in shown],
        [f"rank {r}{' (root)' if r == look.root else ''}" for r in shown],
        fontsize=8 if sheet.row > 0.2 else 6.5,
    )
    every = max(1, math.ceil(0.3 / sheet.column))
    numbers = [n for n in range(1, sheet.rounds + 1) if n == 1 or n % every == 0]
    axes.set_xticks(
        [(n - 0.5) * sheet.column for n in numbers], [str(n) for n in numbers], fontsize=8
    )
    axes.set_xlabel("round (a rank sends one message and receives one in each)", fontsize=9)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for t in range(sheet.rounds + 1):
        axes.axvline(t * sheet.column, color=GRID, linewidth=0.6, zorder=1)
    for r in range(look.size):
        axes.axhline(sheet.at(r, 0)[1], color=PALE, linewidth=0.7, zorder=1)
    if len(set(look.node_of)) > 1:
        _nodes(axes, sheet, look)


def _nodes(axes: Any, sheet: Sheet, look: Look) -> None:
    first = 0
    for r in range(1, look.size + 1):
        if r < look.size and look.node_of[r] == look.node_of[first]:
            continue
        node = look.node_of[first]
        shade = _NODE_SHADES[node % len(_NODE_SHADES)]
        axes.axhspan(first * sheet.row, r * sheet.row, color=shade, linewidth=0, zorder=0)
        if r < look.size:
            axes.axhline(r * sheet.row, color=GREY, linewidth=0.8, zorder=1)
        axes.text(
            sheet.wide + 0.12, (first + r) / 2 * sheet.row, f"node {node}", va="center", fontsize=8
        )
        first = r


def mark_phases(axes: Any, sheet: Sheet, named: Sequence[tuple[int, int, str]]) -> None:
    """Part the phases by lines, and name those that have room for it."""
    for number, (start, end, text) in enumerate(named):
        x = start * sheet.column
        if number:
            axes.plot([x, x], [-0.36, sheet.high], color=INK, linewidth=1, clip_on=False, zorder=2)
        if max(map(len, text.split("\n"))) * GLYPH > (end - start) * sheet.column:
            continue
        middle = (start + end) / 2 * sheet.column
        axes.text(middle, -0.05, text, ha="center", va="bottom", fontsize=7.5, color=INK)


def colour_of(chunk: int | tuple[int, int] | None, look: Look) -> Any:
    """The colour of a chunk; of a block of an alltoall, that of the rank it goes to."""
    if chunk is None:
        return GREY
    number = chunk[1] if isinstance(chunk, tuple) else chunk
    return _colours(look.chunks)[number]


@cache
def _colours(chunks: int) -> list[Any]:
    if chunks <= len(_PALETTE):
        return list(_PALETTE[:chunks])
    return [tuple(row) for row in _ramp()([c / (chunks - 1) for c in range(chunks)])]


def _ramp() -> Any:
    """A ramp that colour-blind people can read, without its palest colours."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"]([0.92 * k / 255 for k in range(256)]))


def fold_marker(sheet: Sheet) -> dict[str, Any]:
    """How the place of a fold is drawn."""
    size = 5.5 if sheet.row > 0.3 and sheet.column > 0.5 else 3.2
    return {
        "marker": "D",
        "linestyle": "none",
        "markersize": size,
        "markerfacecolor": "white",
        "markeredgecolor": INK,
        "markeredgewidth": 1.1 if size > 4 else 0.7,
        "zorder": 5,
        "clip_on": False,
    }


def legend(figure: Any, sheet: Sheet, shown: Run, look: Look, strand: int) -> None:
    """Say what lines and markers mean; `strand` chunks, at most, are one strand."""
    from matplotlib.lines import Line2D

    arrow: dict[str, Any] = {"marker": ">", "markersize": 5, "linewidth": 1.8}
    handles: list[Any] = []
    if any(a.chunks for a in shown.arrows):
        what = "block" if look.pairs else "chunk"
        text = f"is a {what}" if strand == 1 else f"is up to {strand} {what}s"
        text = f"message of {look.unit}" if look.chunks == 1 else f"message: a strand {text} of "
        text += look.unit if look.chunks > 1 else ""
        handles.append(Line2D([], [], color=INK, label=text, **arrow))
    if any(not a.chunks for a in shown.arrows):
        handles.append(Line2D([], [], color=GREY, linestyle="--", label="signal, no data", **arrow))
    if shown.folds:
        handles.append(Line2D([], [], **fold_marker(sheet), label="fold at the receiver"))
    if handles:
        _key(figure, sheet, handles, 0.5)


def _key(figure: Any, sheet: Sheet, handles: list[Any], below: float, **extra: Any) -> None:
    """A row of keys so many inches below the ranks."""
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, (sheet.bottom - below) / sheet.height),
        ncols=len(handles),
        frameon=False,
        fontsize=8.5,
        borderpad=0,
        **extra,
    )


def colour_key(figure: Any, sheet: Sheet, look: Look) -> None:
    """Say which colour is which chunk."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.lines import Line2D

    what = "block for rank" if look.pairs else "chunk"
    if look.chunks <= len(_PALETTE):
        colours = [
            Line2D([], [], color=_PALETTE[c], linewidth=3, label=f"{what} {c}" if not c else str(c))
            for c in range(look.chunks)
        ]
        _key(figure, sheet, colours, 0.82, handlelength=1.2, columnspacing=1.2)
        return
    x, y = 1 / sheet.width, 1 / sheet.height
    bar = figure.add_axes((0.5 - 1.5 * x, (sheet.bottom - 0.93) * y, 3 * x, 0.1 * y))
    scale = ScalarMappable(Normalize(0, look.chunks - 1), _ramp())
    figure.colorbar(scale, cax=bar, orientation="horizontal")
    bar.tick_params(labelsize=7, length=2)
    place = (0.5 - 1.6 * x, (sheet.bottom - 0.88) * y)
    figure.text(*place, what, ha="right", va="center", fontsize=8.5)
