"""What all pictures share: colours, markers, axes, and the check before any work is done."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hpcoll.errors import ConfigError

FORMATS = (".png", ".pdf", ".svg")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00")
"""Okabe and Ito's colours, which colour-blind people can tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK = "#222222"
GREY = "#666666"
PALE = "#999999"
GRID = "#DDDDDD"
DPI = 130


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


def new_figure(width: float, height: float) -> Any:
    """A figure of so many inches, to be written by its ``savefig``; no window, no state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def colour(i: int) -> str:
    """The colour of the i-th thing."""
    return COLOURS[i % len(COLOURS)]


def marker(i: int) -> str:
    """The marker of the i-th thing: another one where its colour comes again."""
    return MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def open_axes(axes: Any) -> None:
    """Leave the frame open at the top and on the right, and put the grid below the data."""
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
