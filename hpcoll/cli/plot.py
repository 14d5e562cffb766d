"""``hpcoll plot``: draw the results of benches."""

from __future__ import annotations

from pathlib import Path

import click

from hpcoll.cli import values


@click.command(
    short_help="Draw the results of benches.",
    epilog="Example: hpcoll plot before.json after.json -o both.png",
)
@click.argument("files", metavar="FILE.json...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="OUT.png",
    help="Picture to write (png, pdf or svg); by default beside the first file.",
)
def command(files: tuple[str, ...], output: str | None) -> None:
    """Draw latency and bandwidth against message size, a line an algorithm.

    FILE.json is what 'hpcoll bench --json' wrote; several are drawn over each other.
    Dotted lines mark where another algorithm becomes the fastest.
    """
    from hpcoll.bench.plot import check_plot, draw
    from hpcoll.bench.results import load_json

    values.checked_settings()
    target = output or str(Path(files[0]).with_suffix(".png"))
    check_plot(target)
    values.check_writable(target, "--output")
    draw([(label, load_json(f)) for label, f in zip(_labels(files), files, strict=True)], target)
    click.echo(f"wrote {target}", err=True)


def _labels(files: tuple[str, ...]) -> list[str]:
    """The stems of the files, with folders where stems are alike."""
    stems = [Path(f).stem for f in files]
    if len(set(stems)) == len(stems):
        return stems
    return [str(Path(f).with_suffix("")) for f in files]
