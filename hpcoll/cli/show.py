"""``hpcoll show``: one algorithm, its proof, its costs and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hpcoll.cli import output, steps, values
from hpcoll.errors import ConfigError, RegistryError, ScheduleError

if TYPE_CHECKING:
    from hpcoll.schedule.algorithm import Algorithm
    from hpcoll.schedule.operations import Step
    from hpcoll.schedule.problem import Problem
    from hpcoll.schedule.topology import Topology
    from hpcoll.schedule.verify import Proof

SIDE_BY_SIDE_UP_TO = 8
CHUNKS_IN_A_CELL = 4
COLUMN_WIDTH = 20
NODES_IN_A_LINE = 16


@click.command(
    short_help="Show an algorithm, its costs and its steps.",
    epilog="Example: hpcoll show allreduce/ring --ranks 4 --plot ring.png",
)
@click.argument("name")
@click.option(
    "--ranks",
    type=values.RANK_COUNT,
    default="8",
    show_default=True,
    metavar="P",
    help="Number of ranks.",
)
@click.option("--root", type=values.whole(0, values.MAX_RANKS), metavar="R", help="Root rank (0).")
@click.option(
    "--steps",
    "step_ranks",
    type=values.whole(0, values.MAX_RANKS),
    multiple=True,
    metavar="RANK",
    help="Show the steps of this rank; may be given several times.",
)
@values.ranks_per_node_option
@click.option(
    "--plot",
    metavar="FILE",
    help="Draw the messages in time: a png, pdf or svg file; up to 64 ranks.",
)
@values.load_option
@values.json_option
def command(
    name: str,
    ranks: int,
    root: int | None,
    step_ranks: tuple[int, ...],
    ranks_per_node: int | None,
    plot: str | None,
    load: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show an algorithm: what it does, step by step, and what that costs.

    NAME is collective/algorithm, with tunables as in allgather/bruck:radix=2. Up to 8
    ranks are shown side by side; of more, rank 0 or those of --steps.
    A received chunk marked (first) is the left operand.

    --plot draws ranks below each other and rounds to the right: an arrow leaves its
    sender when a round starts and reaches its receiver when it ends.
    """
    from hpcoll.schedule import registry
    from hpcoll.schedule.collectives import COLLECTIVES
    from hpcoll.schedule.verify import prove

    values.checked_settings()
    values.load_files(load)
    algorithm = registry.find(name)
    if root is not None and not COLLECTIVES[algorithm.collective].rooted:
        raise ConfigError(f"--root {root}: {algorithm.collective} has no root")
    for option, ranks_named in (("--root", (root or 0,)), ("--steps", step_ranks)):
        for r in ranks_named:
            if r >= ranks:
                raise ConfigError(f"{option} {r}: there are ranks 0 to {ranks - 1}")
    for option, asked in (("--steps", step_ranks), ("--plot", plot)):
        if algorithm.native and asked:
            raise ConfigError(
                f"{option}: {algorithm.full_name} has no schedule, it is the library's own"
            )
    if plot is not None:
        _check_plot(plot, ranks)
    topology = values.topology(ranks, ranks_per_node)
    proof = prove(algorithm, ranks, roots=None if root is None else (root,), topology=topology)
    if proof.skipped and not algorithm.native:
        raise RegistryError(f"{algorithm.spec} can't serve {ranks} ranks: {proof.skipped}")
    shown = tuple(step_ranks) or tuple(range(ranks if ranks <= SIDE_BY_SIDE_UP_TO else 1))
    schedules: dict[int, list[Step]] = {}
    if not algorithm.native:
        first = algorithm.problem(0, ranks, root=root or 0, topology=topology)
        schedules = {r: algorithm.steps(first.at(r)) for r in shown}
    if plot is not None:
        _draw(algorithm, first, proof, plot)
    if as_json:
        output.print_json(_as_json(algorithm, ranks, root or 0, topology, proof, schedules))
    else:
        _print_about(algorithm, ranks, proof, topology)
        if schedules:
            _print_steps(schedules, ranks, root, topology)
    return 0 if proof.fault is None else 1


def _check_plot(path: str, ranks: int) -> None:
    from hpcoll.draw import spacetime, style

    style.check_plot(path)
    values.check_writable(path, "--plot")
    spacetime.check_size(ranks)


def _draw(algorithm: Algorithm, problem: Problem, proof: Proof, path: str) -> None:
    from hpcoll.draw import diagram

    try:
        diagram.draw(algorithm, problem, proof.counts, steps.chunk_list, path)
    except ScheduleError as error:
        click.echo(f"no picture: {error}", err=True)
    else:
        click.echo(f"wrote {path}", err=True)


def _print_about(algorithm: Algorithm, ranks: int, proof: Proof, topology: Topology | None) -> None:
    from hpcoll.schedule.counts import lower_bound

    click.echo(algorithm.spec)
    for line in algorithm.doc.splitlines():
        click.echo(f"  {line}".rstrip())
    click.echo(f"  source: {algorithm.source or 'not given'}")
    if algorithm.origin:
        click.echo(f"  defined in: {algorithm.origin.partition(':')[2]}")
    tunables = ", ".join(f"{k}={v}" for k, v in algorithm.tunables)
    click.echo(f"  tunables: {tunables or 'none'}")
    click.echo()
    if algorithm.native:
        click.echo("the library's own collective: it has no schedule, and nothing is proved")
        return
    if proof.fault is not None:
        click.echo(f"PROOF FAILED: {proof.fault}")
        click.echo()
        return
    counts = proof.counts
    assert counts is not None
    bound = lower_bound(algorithm.collective, ranks)
    n = "(units of n)"
    output.print_table(
        (f"busiest of {ranks} ranks", "count", "least", "distance"),
        [
            (
                "rounds",
                str(counts.rounds),
                str(bound.rounds),
                output.ratio(counts.rounds, bound.rounds),
            ),
            ("messages sent", str(counts.messages), "", ""),
            (
                f"bytes sent {n}",
                output.number(counts.volume),
                output.number(bound.volume),
                output.ratio(counts.volume, bound.volume),
            ),
            (
                f"bytes reduced {n}",
                output.number(counts.reductions),
                output.number(bound.reductions),
                output.ratio(counts.reductions, bound.reductions),
            ),
            (f"scratch {n}", output.number(counts.scratch), "", ""),
        ],
        right=("count", "least", "distance"),
    )
    click.echo()
    click.echo(f"proved at {ranks} ranks; {counts.total} messages in all")
    click.echo(
        "rank order kept: "
        + ("yes, also for operators that don't commute" if proof.rank_order else "no")
    )
    click.echo(f"same bits on all ranks: {'yes' if proof.bit_identical else 'no'}")
    click.echo(f"in place: {'yes' if proof.in_place else 'with one copy of the input'}")
    _print_nodes(proof, topology)
    click.echo()


def _print_nodes(proof: Proof, topology: Topology | None) -> None:
    if topology is None:
        if proof.topological:
            click.echo("nodes: one, as counted and shown here; --ranks-per-node gives several")
        return
    told = [
        f"node {i}: {values.format_ranks(node)}"
        for i, node in enumerate(topology.nodes[:NODES_IN_A_LINE])
    ]
    rest = len(topology.nodes) - len(told)
    click.echo(
        f"ranks of {' | '.join(told)}{f' | and {rest} more nodes' if rest else ''}"
        + ("" if proof.topological else "; the algorithm doesn't look at them")
    )


def _print_steps(
    schedules: dict[int, list[Step]], ranks: int, root: int | None, topology: Topology | None
) -> None:
    out = output.console()
    several = topology is not None and len(topology.nodes) > 1
    node = {r: f" (node {topology.node_of[r]})" if several and topology else "" for r in schedules}
    if 1 < len(schedules) <= SIDE_BY_SIDE_UP_TO and out.width >= COLUMN_WIDTH * len(schedules):
        separator = "\n" if out.is_terminal else "; "
        longest = max(len(s) for s in schedules.values())
        output.print_table(
            ("step", *(f"rank {r}{node[r]}" for r in schedules)),
            [
                (str(i), *(_cell(s, i, separator) for s in schedules.values()))
                for i in range(longest)
            ],
            right=("step",),
            fold_all=True,
        )
        return
    for rank, schedule in schedules.items():
        about = [f"root {root}"] if root is not None else []
        about += [f"node {topology.node_of[rank]}"] if several and topology else []
        told = f" ({', '.join(about)})" if about else ""
        click.echo(f"rank {rank} of {ranks}{told}")
        for i, step in enumerate(schedule):
            lines = [steps.step_text(step)]
            if len(lines[0]) + 12 > out.width:  # a terminal: an operation a line
                lines = [steps.operation_text(o) for o in step]
            for number, line in enumerate(lines):
                head = f"step {i}:"
                click.echo(f"  {' ' * len(head) if number else head} {line}")
        if not schedule:
            click.echo("  no steps")


def _cell(schedule: list[Step], i: int, separator: str) -> str:
    if i >= len(schedule):
        return ""
    return separator.join(steps.operation_text(o, CHUNKS_IN_A_CELL) for o in schedule[i])


def _as_json(
    algorithm: Algorithm,
    ranks: int,
    root: int,
    topology: Topology | None,
    proof: Proof,
    schedules: dict[int, list[Step]],
) -> dict[str, Any]:
    from hpcoll.cli.list import entry

    return {
        **entry(algorithm, ranks, proof),
        "doc": algorithm.doc,
        "ranks": ranks,
        "root": root,
        "nodes": None if topology is None else [list(node) for node in topology.nodes],
        "steps": {str(r): [steps.step_json(s) for s in all_] for r, all_ in schedules.items()},
    }
