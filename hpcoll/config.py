"""Settings: the HPCOLL_ variables, read once into one frozen object.

Sizes are written as in the OSU and nccl-tests benchmarks: K, M and G are powers of 1024.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, NamedTuple

from hpcoll.errors import ConfigError

PREFIX = "HPCOLL_"
PRIVATE_PREFIX = "HPCOLL__"
"""Variables that hpcoll passes to processes it starts; not settings."""

MAX_NBYTES = 2**63 - 1
MAX_SECONDS = 1e9

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(I?B)?", re.IGNORECASE)
_SECONDS = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_PIN = re.compile(r"([a-z_]+)/[^\s/:;,]+(?::[^\s/:;,=]+=[0-9]+(?:,[^\s/:;,=]+=[0-9]+)*)?")
_TRANSPORT = re.compile(r"[a-z][a-z0-9_]*")
_SIZE_RULE = "write whole bytes, as 65536, 64K, 1.5M or 2G (K, M, G: powers of 1024)"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment asks for.

    Attributes
    ----------
    algorithm : tuple of (str, str)
        For each pinned collective, the algorithm with its tunables:
        ``("allreduce", "allreduce/ring")``.
    timeout_s, warn_s, stall_s : float
        Seconds after which a waiting rank gives up, warns, and tells the others
        which call it is in.
    progress : str
        ``"none"`` or ``"thread"``.
    engine : str
        ``"compiled"`` or ``"python"``.
    transport : str
        ``"auto"`` or the name of a transport.
    hooks : bool
        Whether the whole job ends when one rank does so by an exception.
    max_message_nbytes : int
        Larger messages are split; 0 leaves it to the library's own limit.
    cache_size : int
        Recipes that a communicator keeps.
    ranks_per_node : int
        So many consecutive ranks are taken as one node; 0: those that share memory.
    """

    algorithm: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 1800.0
    warn_s: float = 30.0
    stall_s: float = 0.2
    progress: str = "none"
    engine: str = "compiled"
    transport: str = "auto"
    hooks: bool = True
    max_message_nbytes: int = 0
    cache_size: int = 256
    ranks_per_node: int = 0


class Row(NamedTuple):
    """One setting: its variable, what it is now, and what is wrong with that."""

    variable: str
    field: str
    default: str
    current: str
    doc: str
    problem: str | None = None


def parse_size(text: str) -> int:
    """Read a number of bytes.

    K, M and G (in either case, also KiB, MiB, GiB) are powers of 1024, as in the OSU
    and nccl-tests benchmarks. KB, MB and GB are refused: some mean 1000, some 1024.

    Raises
    ------
    ConfigError
        If the text is anything else, or is not a whole number of bytes.
    """
    stripped = text.strip()
    match = _SIZE.fullmatch(stripped) if len(stripped) < 40 else None
    if match is None:
        raise ConfigError(f"{_shown(text)} is not a size: {_SIZE_RULE}")
    number, unit, ending = match[1], match[2].upper(), (match[3] or "").upper()
    if unit and ending == "B":
        raise ConfigError(
            f"{text!r} is ambiguous (1000 or 1024?): write {number}{unit} or {number}{unit}iB, "
            f"which are powers of 1024"
        )
    if not unit and ending == "IB":
        raise ConfigError(f"{text!r} is not a size: {_SIZE_RULE}")
    nbytes = Fraction(number) * _UNITS[unit]
    if nbytes.denominator != 1:
        raise ConfigError(f"{text!r} is not a whole number of bytes: {_SIZE_RULE}")
    if nbytes > MAX_NBYTES:
        raise ConfigError(f"{text!r} is too large: at most {MAX_NBYTES} bytes")
    return int(nbytes)


def format_size(nbytes: int) -> str:
    """Write a number of bytes so that `parse_size` reads the same: ``65536`` is ``64K``."""
    if nbytes:
        for unit in ("G", "M", "K"):
            if nbytes % _UNITS[unit] == 0:
                return f"{nbytes // _UNITS[unit]}{unit}"
    return str(nbytes)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}..."


def _seconds(text: str) -> float:
    value = float(text) if _SECONDS.fullmatch(text) else -1.0
    if not 0 < value <= MAX_SECONDS:
        raise ConfigError(f"give seconds as a positive number, at most {MAX_SECONDS:g}, such as 30")
    return value


def _positive_int(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise ConfigError("give a whole number from 1 to 999999999")
    return int(text)


def _whole(text: str) -> int:
    return 0 if text == "0" else _positive_int(text)


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ConfigError(f"use one of {', '.join(names)}")
        return text

    return parse


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ConfigError("use 1 or 0")
    return text == "1"


def _transport(text: str) -> str:
    if not _TRANSPORT.fullmatch(text):
        raise ConfigError("give auto or the name of a transport, such as mpi")
    return text


def _pins(text: str) -> tuple[tuple[str, str], ...]:
    pins: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _PIN.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"{_shown(part)} must be collective/algorithm; give pins as "
                "'allreduce/ring; allgather/bruck:radix=2'"
            )
        if pins.setdefault(match[1], part) != part:
            raise ConfigError(f"{match[1]} is pinned twice, to {pins[match[1]]} and to {part}")
    if not pins:
        raise ConfigError("it names no algorithm; give collective/algorithm or unset it")
    return tuple(sorted(pins.items()))


_TABLE: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    (
        "algorithm",
        _pins,
        "Pinned algorithms, as 'allreduce/ring; allgather/bruck:radix=2'; the rest are chosen.",
    ),
    ("timeout_s", _seconds, "Seconds that a collective waits before it fails."),
    ("warn_s", _seconds, "Seconds before a waiting rank warns and names whom it waits for."),
    ("stall_s", _seconds, "Seconds before a waiting rank tells the others which call it is in."),
    (
        "progress",
        _one_of("none", "thread"),
        "none, or thread: one that advances started requests between calls.",
    ),
    (
        "engine",
        _one_of("compiled", "python"),
        "compiled, or python: the slow reference on the same tables.",
    ),
    ("transport", _transport, "auto, or the name of a transport, such as mpi."),
    (
        "hooks",
        _flag,
        "1: end the whole job when one rank ends by an exception or a non-zero sys.exit.",
    ),
    (
        "max_message_nbytes",
        parse_size,
        "Split larger messages, as 64K, 1M or 2G; 0 is the library's own limit.",
    ),
    ("cache_size", _positive_int, "Recipes that a communicator keeps."),
    (
        "ranks_per_node",
        _whole,
        "So many consecutive ranks are a node to hierarchical algorithms; 0: as MPI finds them.",
    ),
)

_LOCAL = ("warn_s", "stall_s")


def variable_of(field: str) -> str:
    """The variable of a field: ``timeout_s`` is HPCOLL_TIMEOUT_S."""
    return PREFIX + field.upper()


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from an environment.

    Raises
    ------
    ConfigError
        If a value can't be used; names the variable, the value and what would be right.
    """
    values: dict[str, Any] = {}
    for field, parse, _ in _TABLE:
        text = environ.get(variable_of(field))
        if text is not None:
            values[field] = _value(field, parse, text)
    return Settings(**values)


def _value(field: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        if not text.strip():
            raise ConfigError("it is empty; give a value or unset it")
        return parse(text.strip())
    except ConfigError as error:
        raise ConfigError(f"{variable_of(field)}={_shown(text)}: {error}") from None


@functools.cache
def settings() -> Settings:
    """The settings of this process, read at the first call."""
    return read(os.environ)


def unknown(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str | None]]:
    """The HPCOLL_ variables that mean nothing, each with the one that was probably meant."""
    known = [variable_of(field) for field, _, _ in _TABLE]
    found: list[tuple[str, str | None]] = []
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name not in known:
            if name.startswith(PRIVATE_PREFIX):
                continue
            near = get_close_matches(name.upper(), known, n=1, cutoff=0.7)
            found.append((name, near[0] if near else None))
    return found


def describe(environ: Mapping[str, str] = os.environ) -> list[Row]:
    """All settings with their defaults, current values and documentation.

    A value that can't be used is shown as it is, with what is wrong in ``problem``.
    """
    rows: list[Row] = []
    defaults = Settings()
    for field, parse, doc in _TABLE:
        variable = variable_of(field)
        default = _text(field, getattr(defaults, field))
        current, problem = default, None
        text = environ.get(variable)
        if text is not None:
            try:
                current = _text(field, _value(field, parse, text))
            except ConfigError as error:
                current, problem = text, str(error)
        rows.append(Row(variable, field, default, current, doc, problem))
    return rows


def agreed(settings: Settings) -> str:
    """The settings that must be equal on all ranks, as one text to compare."""
    return "; ".join(
        f"{f.name}={_text(f.name, getattr(settings, f.name))}"
        for f in fields(settings)
        if f.name not in _LOCAL
    )


def _text(field: str, value: Any) -> str:
    if field == "algorithm":
        return "; ".join(spec for _, spec in value) or "auto"
    if field == "max_message_nbytes":
        return format_size(value)
    if isinstance(value, bool):
        return str(int(value))
    return str(value).removesuffix(".0")
