"""``hpcoll compare``: all algorithms of a collective beside each other and the lower bounds."""

from __future__ import annotations

from typing import Any

import click

from hpcoll.cli import output, values
from hpcoll.errors import ConfigError, RegistryError


@click.command(
    short_help="Compare the algorithms of a collective.",
    epilog="Example: hpcoll compare allreduce --ranks 16 --plot allreduce.png, or "
    "hpcoll compare alltoall --algorithm bruck:radix=2,3,4 --algorithm pairwise",
)
@click.argument("collective")
@click.option(
    "--ranks",
    type=values.RANK_COUNT,
    default="16",
    show_default=True,
    metavar="P",
    help="Number of ranks.",
)
@click.option(
    "--algorithm",
    "names",
    multiple=True,
    metavar="NAME",
    help="An algorithm, or several tunings as in bruck:radix=2,3,4; may be given several "
    "times. All by default.",
)
@click.option("--plot", metavar="FILE", help="Draw rounds against bytes (png, pdf or svg).")
@values.ranks_per_node_option
@values.load_option
@values.json_option
def command(
    collective: str,
    ranks: int,
    names: tuple[str, ...],
    plot: str | None,
    ranks_per_node: int | None,
    load: tuple[str, ...],
    as_json: bool,
) -> int:
    """Compare the algorithms of COLLECTIVE: rounds, bytes and bytes reduced.

    Costs are those of the busiest rank, as in list, each with the distance from the
    least that any algorithm can do. Best are those on the frontier: no other one saves
    rounds or bytes and costs no more of the other. Which of them is fastest depends on
    the size of the message.

    Exit status 1: a proof failed.
    """
    from hpcoll.cli.list import entry
    from hpcoll.draw.frontier import Point, draw_frontier, frontier
    from hpcoll.draw.style import check_plot
    from hpcoll.schedule import registry
    from hpcoll.schedule.verify import prove

    values.checked_settings()
    values.load_files(load)
    if plot is not None:
        check_plot(plot)
        values.check_writable(plot, "--plot")
    chosen = registry.algorithms(collective)
    if names:
        chosen = [a for name in names for a in registry.find_all(name, collective)]
    chosen = [a for a in dict.fromkeys(chosen) if not a.native]
    if not chosen:
        raise RegistryError("only algorithms with a schedule can be compared, native has none")
    topology = values.topology(ranks, ranks_per_node)
    entries: list[dict[str, Any]] = []
    with output.progress(len(chosen), f"counting at {ranks} ranks") as advance:
        for a in chosen:
            entries.append(entry(a, ranks, prove(a, ranks, topology=topology)))
            advance()
    counted = [e for e in entries if e["counts"] is not None]
    points = [
        Point(_name(e), e["counts"]["rounds"], e["counts"]["bytes_per_n"],
              e["counts"]["reduced_per_n"])
        for e in counted
    ]  # fmt: skip
    best = frontier(points)
    for e in counted:
        e["best"] = _name(e) in best
    if as_json:
        output.print_json({"ranks": ranks, "algorithms": entries})
    else:
        _print(entries, ranks)
    if plot is not None:
        if not any(p.rounds and p.volume for p in points):
            why = "moves nothing" if counted else "is served by none of them"
            raise ConfigError(f"--plot: nothing to draw: {collective} on {_ranks(ranks)} {why}")
        least = entries[0]["least"]
        nodes = f", {ranks_per_node} a node" if ranks_per_node else ""
        title = f"{chosen[0].collective} on {_ranks(ranks)}{nodes}: {len(points)} algorithm"
        title += "s" * (len(points) != 1)
        draw_frontier(title, points, (least["rounds"], least["bytes_per_n"]), plot)
        click.echo(f"wrote {plot}", err=True)
    return int(any(e["status"] == "wrong" for e in entries))


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def _name(e: dict[str, Any]) -> str:
    """The algorithm without its collective, with its tunables."""
    return str(e["spec"]).partition("/")[2]


def _print(entries: list[dict[str, Any]], ranks: int) -> None:
    least = entries[0]["least"]
    keys = ("rounds", "bytes_per_n", "reduced_per_n")
    headings = [
        f"{word} (least {least[key]:.4g})"
        for word, key in zip(("rounds", "bytes/n", "reduced/n"), keys, strict=True)
    ]
    served = [e for e in entries if e["counts"] is not None]
    served.sort(key=lambda e: (not e["best"], e["counts"]["rounds"], e["counts"]["bytes_per_n"]))
    rows = []
    for e in served:
        costs = [_cost(e["counts"][key], least[key]) for key in keys]
        rows.append((_name(e), *costs, "best" if e["best"] else ""))
    output.print_table(("algorithm", *headings, "frontier"), rows, right=headings)
    for e in entries:
        if e["counts"] is None:
            what = "WRONG" if e["status"] == "wrong" else f"not at {_ranks(ranks)}"
            click.echo(f"{_name(e)}: {what}: {e['reason']}")


def _cost(value: float, least: float) -> str:
    return f"{value:.4g}" + (f" {value / least:5.3g}x" if least else "")
