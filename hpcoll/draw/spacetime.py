"""A space-time diagram: ranks below each other, rounds to the right, messages as arrows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcoll.draw import sheet as paper
from hpcoll.draw.messages import Arrow, Run, phases
from hpcoll.draw.sheet import GLYPH, POINT, Look, Sheet
from hpcoll.draw.style import GREY, INK, check_plot, new_figure
from hpcoll.errors import ConfigError

__all__ = ["Look", "check_size", "draw"]

MAX_RANKS = 64
MAX_ROUNDS = 1000
STRANDS = 8
"""Most strands of an arrow."""
_PHASES = 6


def draw(shown: Run, look: Look, path: str | Path) -> None:
    """Draw a run of all ranks.

    Parameters
    ----------
    shown : Run
        The messages and their rounds, from `hpcoll.draw.messages.run`.
    look : Look
        What else there is to say.
    path : str or Path
        File to write; its ending says the format.

    Raises
    ------
    ConfigError
        If matplotlib is missing, or there are too many ranks or rounds.
    """
    check_plot(path)
    check_size(look.size)
    if shown.rounds > MAX_ROUNDS:
        raise ConfigError(f"{path}: a picture has room for {MAX_ROUNDS} rounds, not {shown.rounds}")
    named = phases(shown, look.node_of)
    named = named if 1 < len(named) <= _PHASES else []
    coloured = look.chunks > 1 and any(a.chunks for a in shown.arrows)
    sheet = Sheet(look.size, shown.rounds, phases=bool(named), colours=coloured)
    figure = new_figure(sheet.width, sheet.height)
    figure.set_layout_engine("none")
    axes = figure.add_axes(
        (
            sheet.left / sheet.width,
            sheet.bottom / sheet.height,
            sheet.wide / sheet.width,
            sheet.high / sheet.height,
        )
    )
    paper.frame(axes, sheet, look)
    paper.mark_phases(axes, sheet, named)
    strands = _arrows(axes, sheet, shown, look)
    folds = [sheet.at(rank, time) for rank, time in shown.folds]
    if folds:
        axes.plot(*zip(*folds, strict=True), **paper.fold_marker(sheet))
    if not shown.arrows:
        axes.text(*sheet.at((look.size - 1) / 2, 0.5), "no messages", ha="center", color=GREY)
    figure.text(0.5, 1 - 0.12 / sheet.height, look.title, ha="center", va="top", fontsize=10.5)
    paper.legend(figure, sheet, shown, look, strands)
    if coloured:
        paper.colour_key(figure, sheet, look)
    figure.savefig(path)


def check_size(size: int) -> None:
    """Refuse more ranks than can be told apart.

    Raises
    ------
    ConfigError
        If there are more than 64.
    """
    if size > MAX_RANKS:
        raise ConfigError(f"a picture has room for {MAX_RANKS} ranks, not {size}")


def _arrows(axes: Any, sheet: Sheet, shown: Run, look: Look) -> int:
    """Draw the messages; return how many chunks a strand stands for at most."""
    from matplotlib.collections import LineCollection, PolyCollection

    most = max((len(a.chunks) for a in shown.arrows), default=1)
    strands = min(most, STRANDS)
    room = 0.3 * sheet.row / POINT
    pitch = min(2.0, max(0.9, 0.09 * sheet.row / POINT), max(0.6, room / max(strands, 1)))
    head = min(5.5, 0.35 * sheet.row / POINT, 0.3 * sheet.column / POINT)
    gap = paper.fold_marker(sheet)["markersize"] / 2 + 0.3
    lines: list[Any] = []
    colours: list[Any] = []
    heads: list[Any] = []
    head_colours: list[Any] = []
    dashes: list[Any] = []
    for a in shown.arrows:
        x0, y0 = sheet.at(a.source, a.round)
        x1, y1 = sheet.at(a.target, a.round + 1)
        length = math.hypot(x1 - x0, y1 - y0)
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        back = (gap if a.folded else 0.3) * POINT
        x1, y1 = x1 - dx * back, y1 - dy * back
        count = math.ceil(len(a.chunks) * strands / most) if a.chunks else 1
        half = max(head * 0.42, count * pitch / 2 + 0.8) * POINT
        deep = min(max(head, 1.6 * half / POINT) * POINT, 0.35 * length)
        xe, ye = x1 - dx * deep, y1 - dy * deep
        heads.append([(x1, y1), (xe - dy * half, ye + dx * half), (xe + dy * half, ye - dx * half)])
        head_colours.append(paper.colour_of(a.chunks[0], look) if len(a.chunks) == 1 else INK)
        for k in range(count):
            aside = (k - (count - 1) / 2) * pitch * POINT
            lines.append([(x0 - dy * aside, y0 + dx * aside), (xe - dy * aside, ye + dx * aside)])
            chunk = a.chunks[k * len(a.chunks) // count] if a.chunks else None
            colours.append(paper.colour_of(chunk, look))
            dashes.append("-" if a.chunks else (0, (4, 2)))
    width = pitch * (0.9 if strands > 1 else 0.8)
    axes.add_collection(
        LineCollection(
            lines, colors=colours, linewidths=width, linestyles=dashes, clip_on=False, zorder=3
        )
    )
    axes.add_collection(
        PolyCollection(heads, facecolors=head_colours, linewidths=0, clip_on=False, zorder=4)
    )
    _labels(axes, sheet, shown.arrows, look)
    return math.ceil(most / strands) if strands else 1


def _labels(axes: Any, sheet: Sheet, arrows: Sequence[Arrow], look: Look) -> None:
    """Name the chunks of each message on its arrow, beside its sender, where there is room."""
    if sheet.row < 0.36 or sheet.column < 0.45 or (look.chunks == 1 and not look.pairs):
        return
    for a in arrows:
        if not a.chunks:
            continue
        text = look.text(a.chunks)
        if len(text) > 9 or len(text) * GLYPH > 0.6 * sheet.column:
            text = f"{len(a.chunks)}x"
        # At such a distance from the sender's line labels of a round seldom meet.
        part = max(0.3 / abs(a.target - a.source), 0.1)
        x = (a.round + part) * sheet.column
        y = sheet.at(a.source, 0)[1] + (a.target - a.source) * part * sheet.row
        axes.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=6.5,
            color=INK,
            zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.7},
        )
