"""What commands read from their arguments: sizes, rank lists, factors, files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcoll import config
from hpcoll.errors import ConfigError
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.topology import Topology

MAX_RANKS = 4096
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")

F = TypeVar("F", bound="Callable[..., Any]")

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    # Older versions of click have no generic one.
    _ParamType = click.ParamType


class Value(_ParamType):
    """A click type made of a parser that raises ConfigError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read a list of rank numbers such as ``1-32,48,64``, lowest first, each once.

    Raises
    ------
    ConfigError
        If it is not such a list, or a number is not from 1 to 4096.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            shown = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
            raise ConfigError(f"{shown} is not a list of rank numbers: write 8 or 1-32,48,64")
        low = int(match[1])
        high = int(match[2]) if match[2] else low
        if not 1 <= low <= MAX_RANKS or not 1 <= high <= MAX_RANKS:
            raise ConfigError(f"{part.strip()!r}: give numbers of ranks from 1 to {MAX_RANKS}")
        if low > high:
            raise ConfigError(f"{part.strip()!r} runs backwards: write {high}-{low}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def format_ranks(ranks: Sequence[int]) -> str:
    """Write rank numbers so that `parse_ranks` reads the same: ``1-32,48``."""
    runs: list[list[int]] = []
    for r in sorted(ranks):
        if runs and r == runs[-1][1] + 1:
            runs[-1][1] = r
        else:
            runs.append([r, r])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _parse_rank_count(text: str) -> int:
    ranks = parse_ranks(text)
    if len(ranks) != 1:
        raise ConfigError(f"{text!r}: give one number of ranks")
    return ranks[0]


def _parse_factor(text: str) -> float:
    number = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text.strip()) else 0.0
    if not number > 1:
        raise ConfigError(f"{text!r}: give a number above 1, such as 2, or sizes would not grow")
    return number


def whole(low: int, high: int = 10**9) -> Value:
    """A click type for whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
            shown = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
            raise ConfigError(f"{shown}: give a whole number from {low} to {high}")
        return int(text)

    return Value("number", parse)


RANKS = Value("ranks", parse_ranks)
RANK_COUNT = Value("ranks", _parse_rank_count)
SIZE = Value("size", config.parse_size)
FACTOR = Value("factor", _parse_factor)

load_option: Callable[[F], F] = click.option(
    "--load",
    "load",
    multiple=True,
    metavar="FILE",
    help="A Python file that registers algorithms; may be given several times.",
)


ranks_per_node_option: Callable[[F], F] = click.option(
    "--ranks-per-node",
    type=whole(1, MAX_RANKS),
    metavar="G",
    help="So many consecutive ranks share a node; all by default.",
)


def topology(ranks: int, ranks_per_node: int | None) -> Topology | None:
    """Where the ranks lie, as --ranks-per-node says; None where it is not given."""
    return Topology.blocks(ranks, ranks_per_node) if ranks_per_node else None


def json_option(function: F) -> F:
    """Add ``--json``: print JSON for a script."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def checked_settings() -> config.Settings:
    """The settings; an unknown HPCOLL_ variable is an error.

    Raises
    ------
    ConfigError
        Naming all unknown variables, with suggestions, or the value that is wrong.
    """
    strange = config.unknown()
    if strange:
        raise ConfigError(
            "; ".join(unknown_text(*item) for item in strange) + "; 'hpcoll env' lists the settings"
        )
    return config.read()


def unknown_text(name: str, suggestion: str | None) -> str:
    """An unknown variable in words."""
    hint = f": did you mean {suggestion}?" if suggestion else ""
    return f"unknown variable {name}{hint}"


def load_files(files: Sequence[str]) -> list[Algorithm]:
    """Load files of algorithms; return what they registered."""
    from hpcoll.schedule import registry

    return [a for file in files for a in registry.load_file(file)]


def check_writable(path: str, option: str) -> None:
    """Refuse an output file that can't be written, before the work is done.

    Raises
    ------
    ConfigError
        If its folder does not exist or it is a folder itself.
    """
    file = Path(path)
    if file.is_dir():
        raise ConfigError(f"{option} {path}: is a folder")
    if not file.parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {str(file.parent)!r}")
