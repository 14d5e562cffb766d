"""What a bench is asked to measure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcoll.errors import ConfigError

MAX_SIZES = 1000


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure, all checked as far as one process can.

    Attributes
    ----------
    collective : str
        Such as ``"allreduce"``.
    ranks : int or None
        Ranks to start; None is left to the driver (the job's own inside a job).
    sizes : tuple of int
        Message sizes in bytes, ascending, whole elements of `dtype`.
    dtype, op : str
        Element type; operator, ``"none"`` where the collective does not reduce.
    algorithms : tuple of str
        ``("auto",)``, ``("all",)``, or algorithms with their tunables.
    transport : str
        ``"auto"`` or a transport's name.
    versus : str or None
        ``"mpi"`` to measure the library's own collective in the same run, ``"gloo"``
        torch.distributed's.
    in_place : bool
        Whether the result overwrites the input.
    symmetric : bool
        Whether each algorithm is also measured on arrays of the ranks' shared heaps.
    root : int
        The root of rooted collectives, else 0.
    iterations, warmup : int or None
        Calls that are measured, and calls before them; None is the driver's choice.
    json, csv, plot : str or None
        Files to write.
    load : tuple of str
        Python files that register algorithms.
    """

    collective: str
    ranks: int | None = None
    sizes: tuple[int, ...] = ()
    dtype: str = "float32"
    op: str = "sum"
    algorithms: tuple[str, ...] = ("auto",)
    transport: str = "auto"
    versus: str | None = None
    in_place: bool = False
    symmetric: bool = False
    root: int = 0
    iterations: int | None = None
    warmup: int | None = None
    json: str | None = None
    csv: str | None = None
    plot: str | None = None
    load: tuple[str, ...] = ()


def sizes_between(low: int, high: int, factor: float, itemsize: int) -> tuple[int, ...]:
    """Message sizes from `low` to `high` bytes, each `factor` times the one before.

    Sizes are rounded up to whole elements. After 0 bytes comes one element.

    Raises
    ------
    ConfigError
        If `low` is above `high`, no whole element fits, or there are more than 1000.
    """
    if low > high:
        raise ConfigError(f"--min-bytes {low} is above --max-bytes {high}")
    if not factor > 1:
        raise ConfigError(f"--factor {factor}: must be above 1, or sizes would not grow")
    sizes = [0] if low == 0 else []
    start = low or itemsize
    if high > start and math.log(high / start) / math.log(factor) > 100 * MAX_SIZES:
        raise ConfigError(f"--factor {factor}: too near to 1, sizes would hardly grow")
    exact = float(start)
    while (size := -(-round(exact) // itemsize) * itemsize) <= high:
        if not sizes or size > sizes[-1]:
            sizes.append(size)
        if len(sizes) > MAX_SIZES:
            raise ConfigError(
                f"--factor {factor} gives more than {MAX_SIZES} sizes up to {high} bytes"
            )
        exact *= factor
    if not sizes:
        raise ConfigError(
            f"no whole element of {itemsize} bytes between --min-bytes {low} and --max-bytes {high}"
        )
    return tuple(sizes)
