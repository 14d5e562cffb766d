"""``hpcoll show``: one algorithm, its proof, its costs and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hpcoll.cli import output, steps, values
from hpcoll.errors import ConfigError, RegistryError

if TYPE_CHECKING:
    from hpcoll.schedule.algorithm import Algorithm
    from hpcoll.schedule.operations import Step
    from hpcoll.schedule.verify import Proof

SIDE_BY_SIDE_UP_TO = 8
CHUNKS_IN_A_CELL = 4
COLUMN_WIDTH = 20


@click.command(
    short_help="Show an algorithm, its costs and its steps.",
    epilog="Example: hpcoll show allreduce/ring --ranks 4",
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
@values.load_option
@values.json_option
def command(
    name: str,
    ranks: int,
    root: int | None,
    step_ranks: tuple[int, ...],
    load: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show an algorithm: what it does, step by step, and what that costs.

    NAME is collective/algorithm, with tunables as in allgather/bruck:radix=2. Up to 8
    ranks are shown side by side; of more, rank 0 or those of --steps.
    A received chunk marked (first) is the left operand.
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
    if algorithm.native and step_ranks:
        raise ConfigError(
            f"--steps: {algorithm.full_name} has no schedule, it is the library's own"
        )
    proof = prove(algorithm, ranks, roots=None if root is None else (root,))
    if proof.skipped and not algorithm.native:
        raise RegistryError(f"{algorithm.spec} can't serve {ranks} ranks: {proof.skipped}")
    shown = tuple(step_ranks) or tuple(range(ranks if ranks <= SIDE_BY_SIDE_UP_TO else 1))
    schedules: dict[int, list[Step]] = {}
    if not algorithm.native:
        schedules = {r: algorithm.steps(algorithm.problem(r, ranks, root=root or 0)) for r in shown}
    if as_json:
        output.print_json(_as_json(algorithm, ranks, root or 0, proof, schedules))
    else:
        _print_about(algorithm, ranks, proof)
        if schedules:
            _print_steps(schedules, ranks, root)
    return 0 if proof.fault is None else 1


def _print_about(algorithm: Algorithm, ranks: int, proof: Proof) -> None:
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
    click.echo()


def _print_steps(schedules: dict[int, list[Step]], ranks: int, root: int | None) -> None:
    out = output.console()
    if 1 < len(schedules) <= SIDE_BY_SIDE_UP_TO and out.width >= COLUMN_WIDTH * len(schedules):
        separator = "\n" if out.is_terminal else "; "
        longest = max(len(s) for s in schedules.values())
        output.print_table(
            ("step", *(f"rank {r}" for r in schedules)),
            [
                (str(i), *(_cell(s, i, separator) for s in schedules.values()))
                for i in range(longest)
            ],
            right=("step",),
            fold_all=True,
        )
        return
    for rank, schedule in schedules.items():
        suffix = f" (root {root})" if root is not None else ""
        click.echo(f"rank {rank} of {ranks}{suffix}")
        for i, step in enumerate(schedule):
            click.echo(f"  step {i}: {steps.step_text(step)}")
        if not schedule:
            click.echo("  no steps")


def _cell(schedule: list[Step], i: int, separator: str) -> str:
    if i >= len(schedule):
        return ""
    return separator.join(steps.operation_text(o, CHUNKS_IN_A_CELL) for o in schedule[i])


def _as_json(
    algorithm: Algorithm, ranks: int, root: int, proof: Proof, schedules: dict[int, list[Step]]
) -> dict[str, Any]:
    from hpcoll.cli.list import entry

    return {
        **entry(algorithm, ranks, proof),
        "doc": algorithm.doc,
        "ranks": ranks,
        "root": root,
        "steps": {str(r): [steps.step_json(s) for s in all_] for r, all_ in schedules.items()},
    }
