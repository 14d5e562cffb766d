"""``hpcoll list``: which algorithms there are and what each costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from hpcoll.cli import output, values

if TYPE_CHECKING:
    from hpcoll.schedule.algorithm import Algorithm
    from hpcoll.schedule.verify import Proof


ANY_UP_TO = 64
"""An algorithm that serves all numbers of ranks up to this one is said to serve any."""


@click.command(
    "list",
    short_help="List the algorithms and what each costs.",
    epilog="Example: hpcoll list allreduce --ranks 16, or hpcoll list --json > all.json",
)
@click.argument("collective", required=False)
@click.option(
    "--ranks",
    type=values.RANK_COUNT,
    default="8",
    show_default=True,
    metavar="P",
    help="Number of ranks to count for.",
)
@values.ranks_per_node_option
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@values.load_option
@values.json_option
def command(
    collective: str | None,
    ranks: int,
    ranks_per_node: int | None,
    markdown: bool,
    load: tuple[str, ...],
    as_json: bool,
) -> None:
    """List the algorithms, with their costs beside the lower bound.

    Costs are those of the busiest rank: rounds when a rank sends one message and
    receives one at a time; bytes sent and bytes reduced in units of the message size
    n. In brackets stands the least that any algorithm can do, and how many times that
    it is. In place, "one copy" means that the input is copied first. A * marks algorithms
    that look at the nodes: --ranks-per-node says how many ranks share one.
    """
    if markdown and as_json:
        raise click.UsageError("--markdown and --json: give one of them")
    from hpcoll.schedule import registry
    from hpcoll.schedule.verify import prove

    values.checked_settings()
    values.load_files(load)
    found = registry.algorithms(collective)
    entries: list[dict[str, Any]] = []
    with output.progress(len(found), f"counting at {ranks} ranks") as advance:
        for algorithm in found:
            proof = prove(algorithm, ranks, topology=values.topology(ranks, ranks_per_node))
            entries.append(entry(algorithm, ranks, proof))
            advance()
    if as_json:
        output.print_json({"ranks": ranks, "algorithms": entries})
        return
    if markdown:
        click.echo("\n".join(_markdown(entries)))
        return
    gap = "\n" if output.console().is_terminal else " "
    costs = tuple(f"{name}{gap}(least)" for name in ("rounds", "bytes/n", "reduced/n"))
    output.print_table(
        (
            "algorithm",
            "tunables",
            *costs,
            f"rank{gap}order",
            f"same{gap}bits",
            f"in{gap}place",
            "source",
        ),
        [_cells(e) for e in entries],
        right=costs,
    )
    if not entries:
        click.echo("no algorithm is registered", err=True)


def entry(algorithm: Algorithm, ranks: int, proof: Proof) -> dict[str, Any]:
    """What is known of one algorithm, as JSON."""
    from hpcoll.schedule.counts import lower_bound

    bound = lower_bound(algorithm.collective, ranks)
    status = "proved" if proof.proved else "wrong" if proof.fault else "skipped"
    counts = proof.counts
    return {
        "collective": algorithm.collective,
        "algorithm": algorithm.name,
        "spec": algorithm.spec,
        "tunables": dict(algorithm.tunables),
        "source": algorithm.source,
        "status": "unproved" if algorithm.native else status,
        "reason": proof.skipped or proof.fault,
        "counts": None
        if counts is None
        else {
            "rounds": counts.rounds,
            "messages": counts.messages,
            "bytes_per_n": float(counts.volume),
            "reduced_per_n": float(counts.reductions),
            "scratch_per_n": float(counts.scratch),
        },
        "least": {
            "rounds": bound.rounds,
            "bytes_per_n": float(bound.volume),
            "reduced_per_n": float(bound.reductions),
        },
        "rank_order": proof.rank_order if proof.proved else None,
        "bit_identical": proof.bit_identical if proof.proved else None,
        "in_place": proof.in_place if proof.proved else None,
        "topological": proof.topological if proof.proved else None,
        "any_ranks": not any(map(_refuses(algorithm), range(1, ANY_UP_TO + 1))),
    }


def _refuses(algorithm: Algorithm) -> Callable[[int], bool]:
    def refuses(ranks: int) -> bool:
        return algorithm.refuses(algorithm.problem(0, ranks)) is not None

    return refuses


def _cells(e: dict[str, Any]) -> list[str]:
    tunables = ", ".join(f"{k}={v}" for k, v in e["tunables"].items()) or "-"
    star = "*" if e["topological"] else ""
    head = [f"{e['collective']}/{e['algorithm']}{star}", tunables]
    if e["counts"] is None:
        if e["status"] == "unproved":
            return [*head, "-", "-", "-", "-", "-", "-", "unproved: the library's own"]
        mark = "!WRONG: " if e["status"] == "wrong" else "not at this size: "
        return [*head, "-", "-", "-", "-", "-", "-", mark + str(e["reason"])]
    counts, least = e["counts"], e["least"]
    pairs = [
        _distance(counts[key], least[key]) for key in ("rounds", "bytes_per_n", "reduced_per_n")
    ]
    reduces = counts["reduced_per_n"] or least["reduced_per_n"]
    return [
        *head,
        *pairs[:2],
        pairs[2] if reduces else "-",
        ("yes" if e["rank_order"] else "no") if reduces else "-",
        "yes" if e["bit_identical"] else "no",
        "yes" if e["in_place"] else "one copy",
        e["source"] or "-",
    ]


def _distance(value: float, least: float) -> str:
    """A cost, in brackets the least, and how many times that it is."""
    times = f" {value / least:.3g}x" if least else ""
    return f"{value:.4g} ({least:.4g}){times}"


def _markdown(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of a Markdown table; the library's own collectives are left out."""
    yield "| algorithm | tunables | rounds | bytes/n | reduced/n | any p | rank order | source |"
    yield "|---|---|---|---|---|---|---|---|"
    for e in entries:
        if e["status"] == "unproved":
            continue
        name, tunables, *costs = _cells(e)
        rounds, nbytes, reduced, order = costs[:4]
        served = "yes" if e["any_ranks"] else "no"
        cells = (name, tunables, rounds, nbytes, reduced, served, order, _linked(e["source"]))
        yield f"| {' | '.join(cells)} |"


def _linked(source: str) -> str:
    """A source with links where it names a DOI or a paper of arXiv."""
    source = re.sub(r"doi:([^\s,;]+)", r"[doi:\1](https://doi.org/\1)", source)
    return re.sub(r"arXiv:([0-9.]+[0-9])", r"[arXiv:\1](https://arxiv.org/abs/\1)", source)
