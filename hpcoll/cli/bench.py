"""``hpcoll bench``: read and check what is to be measured."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hpcoll.cli import values
from hpcoll.errors import ConfigError

if TYPE_CHECKING:
    from hpcoll.bench.options import BenchOptions
    from hpcoll.schedule.collectives import Collective


@click.command(
    short_help="Measure algorithms on MPI ranks.",
    epilog="Example: hpcoll bench allreduce --ranks 4 --algorithm all --versus mpi "
    "--json out.json --plot out.png, or "
    "hpcoll bench allreduce --symmetric --versus gloo",
)
@click.argument("collective")
@click.option(
    "--ranks",
    type=values.RANK_COUNT,
    metavar="N",
    help="Ranks to start; inside an MPI job, how many there must be.",
)
@click.option(
    "--min-bytes",
    type=values.SIZE,
    default="8",
    show_default=True,
    metavar="SIZE",
    help="Smallest message; K, M, G are powers of 1024.",
)
@click.option(
    "--max-bytes",
    type=values.SIZE,
    default="64M",
    show_default=True,
    metavar="SIZE",
    help="Largest message.",
)
@click.option(
    "--factor",
    type=values.FACTOR,
    default="4",
    show_default=True,
    metavar="X",
    help="Each size is X times the one before; above 1.",
)
@click.option("--dtype", default="float32", show_default=True, help="Type of the elements.")
@click.option("--op", default="sum", show_default=True, help="Reduction operator.")
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    metavar="NAME",
    help="auto (the default), all, or an algorithm, such as ring or bruck:radix=3, or "
    "several tunings as in bruck:radix=2,3,4; may be given several times.",
)
@click.option(
    "--transport", metavar="NAME", help="auto or a transport. [default: HPCOLL_TRANSPORT]"
)
@click.option(
    "--versus",
    type=click.Choice(["mpi", "gloo"]),
    help="Measure the MPI library's own collective in the same run, or that of "
    "torch.distributed over gloo (needs torch).",
)
@click.option(
    "--symmetric",
    is_flag=True,
    help="Measure each algorithm also on arrays that the other ranks read without a copy, "
    "those of Communicator.empty; needs shared memory.",
)
@click.option("--in-place", is_flag=True, help="The result overwrites the input.")
@click.option("--root", type=values.whole(0, values.MAX_RANKS), metavar="R", help="Root rank (0).")
@click.option(
    "--iters",
    "iterations",
    type=values.whole(1),
    metavar="N",
    help="Measured calls of each size; by default as many as take a fixed time.",
)
@click.option(
    "--warmup",
    type=values.whole(0),
    metavar="N",
    help="Calls before the measured ones.",
)
@click.option("--json", metavar="FILE", help="Write the results as JSON.")
@click.option("--csv", metavar="FILE", help="Write the results as CSV.")
@click.option("--plot", metavar="FILE", help="Draw the results (png, pdf or svg).")
@values.load_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure algorithms of COLLECTIVE on MPI ranks, beside the MPI library's own.

    Outside an MPI job it starts its own ranks. Times are the slowest rank's; every
    result is checked.

    Exit status 1: elements were wrong.
    """
    options = _options(given, _explicit(ctx))
    driver = importlib.import_module("hpcoll.bench.driver")
    return int(driver.main(options))


def _explicit(ctx: click.Context) -> set[str]:
    return {n for n in ctx.params if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE}


def _options(given: dict[str, Any], explicit: set[str]) -> BenchOptions:
    """Check all options together.

    Raises
    ------
    HpcollError
        Whatever does not fit, before any rank is started.
    """
    from hpcoll.bench.options import BenchOptions, sizes_between
    from hpcoll.schedule.collectives import collective_named

    settings = values.checked_settings()
    kind = collective_named(given["collective"])
    values.load_files(given["load"])
    ranks = given["ranks"]
    root = _root(kind, given["root"], ranks)
    itemsize = _check_dtype(given["dtype"], given["op"], kind, "op" in explicit)
    sizes: tuple[int, ...] = (0,)
    if kind.name != "barrier":
        sizes = sizes_between(given["min_bytes"], given["max_bytes"], given["factor"], itemsize)
    if given["symmetric"] and kind.name == "barrier":
        raise ConfigError("--symmetric: barrier has no arrays")
    if given["versus"] == "gloo":
        from hpcoll.bench.gloo import check_gloo

        check_gloo(given["collective"], given["op"] if kind.reduces else None)
    _check_files(given)
    return BenchOptions(
        collective=given["collective"],
        ranks=ranks,
        sizes=sizes,
        dtype=given["dtype"],
        op=given["op"] if kind.reduces else "none",
        algorithms=_algorithms(kind, given["algorithms"]),
        transport=_transport(given["transport"] or settings.transport),
        versus=given["versus"],
        in_place=given["in_place"],
        symmetric=given["symmetric"],
        root=root,
        iterations=given["iterations"],
        warmup=given["warmup"],
        json=given["json"],
        csv=given["csv"],
        plot=given["plot"],
        load=given["load"],
    )


def _root(kind: Collective, root: int | None, ranks: int | None) -> int:
    if root is not None and not kind.rooted:
        raise ConfigError(f"--root {root}: {kind.name} has no root")
    if root is not None and ranks is not None and root >= ranks:
        raise ConfigError(f"--root {root}: there are ranks 0 to {ranks - 1}")
    return root or 0


def _check_dtype(dtype: str, op: str, kind: Collective, op_given: bool) -> int:
    """Refuse an unknown or unfit pair; return the bytes of an element."""
    from hpcoll.kernels.dtypes import DTYPES, check_supported
    from hpcoll.schedule.ops import resolve_op

    if dtype not in DTYPES:
        near = get_close_matches(dtype, DTYPES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"--dtype {dtype}: {hint}use one of {', '.join(DTYPES)}")
    if kind.reduces:
        check_supported(resolve_op(op), DTYPES[dtype])
    elif op_given:
        raise ConfigError(f"--op {op}: {kind.name} reduces nothing")
    return int(DTYPES[dtype].itemsize)


def _algorithms(kind: Collective, names: tuple[str, ...]) -> tuple[str, ...]:
    from hpcoll.schedule import registry

    if not names:
        return ("auto",)
    if "all" in names or "auto" in names:
        if len(set(names)) > 1:
            raise ConfigError("--algorithm: auto and all stand alone")
        return (names[0],)
    found = [a for name in names for a in registry.find_all(name, kind.name)]
    return tuple(dict.fromkeys(a.asked for a in found))


def _transport(name: str) -> str:
    from hpcoll.runtime.transport import transport_names

    known = ["auto", *transport_names()]
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"--transport {name}: {hint}use one of {', '.join(known)}")
    return name


def _check_files(given: dict[str, Any]) -> None:
    outputs = [(name, given[name]) for name in ("json", "csv", "plot") if given[name] is not None]
    for name, path in outputs:
        values.check_writable(path, f"--{name}")
    if len({path for _, path in outputs}) < len(outputs):
        raise ConfigError("--json, --csv and --plot must name different files")
    if given["plot"] is not None:
        from hpcoll.bench.plot import check_plot

        check_plot(given["plot"])
