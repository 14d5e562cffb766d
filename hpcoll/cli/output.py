"""What commands print: tables and JSON on standard output, progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 100_000
LAST_COLUMN_WIDTH = 24
PLAIN_INTERVAL_S = 10.0


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would end the process with status 1.
        raise BrokenPipeError


def console() -> Console:
    """Standard output: as wide as the terminal, or unlimited and without colours."""
    if sys.stdout.isatty():
        return _Console(highlight=False)
    return _Console(force_terminal=False, no_color=True, highlight=False, width=PIPE_WIDTH)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    fold_all: bool = False,
) -> None:
    """Print rows under headings; nothing is cut off.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : sequence of sequences of str
        Cells; a cell that starts with ``!`` is shown in red, without the mark.
    right : sequence of str
        The headings of columns that are flush right.
    fold_all : bool
        Whether all columns may be folded on a narrow terminal, or only the last.
    """
    out = console()
    plain = not out.is_terminal
    table = Table(
        box=None if plain else box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1)
    )
    least = 0
    for i, name in enumerate(columns):
        fixed = plain or not (fold_all or i == len(columns) - 1)
        lines = [line for cell in (name, *(r[i] for r in rows)) for line in cell.split("\n")]
        width = max(map(len, lines), default=0)
        width = width if fixed else min(width, 1 if fold_all else LAST_COLUMN_WIDTH)
        least += width + 3
        table.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=fixed,
            min_width=width,
        )
    for row in rows:
        table.add_row(*(Text(c[1:], style="red") if c.startswith("!") else Text(c) for c in row))
    if not plain:
        # A terminal that is too narrow breaks the lines itself.
        out.width = max(out.width, least)
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def print_json(value: Any) -> None:
    """Print JSON."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def number(value: Fraction | int) -> str:
    """A count in units of n, to four digits."""
    return f"{float(value):.4g}"


def ratio(value: Fraction | int, least: Fraction | int) -> str:
    """How far a cost is from the least possible."""
    if value == least:
        return "optimal"
    return f"{float(value) / float(least):.3g}x" if least else "-"


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[], None]]:
    """Show on standard error how much of long work is done.

    Yields
    ------
    callable
        To be called after each piece.
    """
    if sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        bar = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        with bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)
        return
    start = last = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal done, last
        done += 1
        now = time.monotonic()
        if now - last >= PLAIN_INTERVAL_S:
            last = now
            click.echo(f"{what}: {done} of {total}, {now - start:.0f} s", err=True)

    yield advance
