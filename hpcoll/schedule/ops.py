"""Reduction operators: what a schedule and the kernels need to know of one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from hpcoll.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Op:
    """A reduction operator.

    Attributes
    ----------
    name : str
        Name that the user wrote, such as ``"sum"``.
    commutes : bool
        Whether operands may be swapped. Where False, only algorithms that are
        proved to keep rank order are used.
    width : int
        Elements that belong together; no chunk boundary falls between them.
    function : callable or None
        The Python function of a user operator; None for a built-in one.
    identity : scalar or None
        Value with ``op(identity, x) == x``; built-in operators take theirs from
        the dtype.
    """

    name: str
    commutes: bool = True
    width: int = 1
    function: Callable[[Any, Any], Any] | None = field(default=None, compare=False)
    identity: float | int | complex | None = None
    digest: str = ""

    @property
    def signature(self) -> str:
        """Text that is equal on two ranks only if the operators are the same."""
        return f"{self.name}#{self.digest}" if self.digest else self.name


SUM = Op("sum")
PROD = Op("prod")
MIN = Op("min")
MAX = Op("max")
AVG = Op("avg")
LAND = Op("land")
LOR = Op("lor")
LXOR = Op("lxor")
BAND = Op("band")
BOR = Op("bor")
BXOR = Op("bxor")

BUILTIN: dict[str, Op] = {
    o.name: o for o in (SUM, PROD, MIN, MAX, AVG, LAND, LOR, LXOR, BAND, BOR, BXOR)
}


def resolve_op(op: str | Op) -> Op:
    """Return the operator that a user named, or the operator itself."""
    if isinstance(op, Op):
        return op
    if isinstance(op, str) and op in BUILTIN:
        return BUILTIN[op]
    raise ConfigError(
        f"unknown op {op!r}: use one of {', '.join(BUILTIN)}, or an operator made by hpcoll.op()"
    )


def make_op(
    function: Callable[[Any, Any], Any],
    *,
    commute: bool,
    width: int = 1,
    identity: float | int | complex | None = None,
    name: str | None = None,
) -> Op:
    """Make a reduction operator of a Python function.

    Parameters
    ----------
    function : callable
        ``function(a, b)`` combines two elements, `a` from the lower ranks. With
        ``width == 1`` both are scalars and the result is a scalar; otherwise both
        are 1-D arrays of `width` elements, and the result is a tuple of `width`
        scalars. It is compiled by numba, so it must be plain numeric Python. It
        must be associative.
    commute : bool
        Whether ``function(a, b) == function(b, a)``.
    width : int
        Elements that belong together, e.g. 4 for a 2x2 matrix product.
    identity : scalar, optional
        Value with ``function(identity, x) == x``; what `exscan` gives to rank 0.
    name : str, optional
        Name shown in messages; the function's own by default.

    Raises
    ------
    ConfigError
        If `function` can't be called or `width` is not a positive integer.
    """
    if not callable(function):
        raise ConfigError(f"op needs a function of two arguments, not {function!r}")
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ConfigError(f"width must be a positive integer, not {width!r}")
    return Op(
        name or str(getattr(function, "__name__", "op")),
        bool(commute),
        width,
        function,
        identity,
        _digest(function, width, identity, commute),
    )


def _digest(function: Callable[..., Any], *rest: object) -> str:
    """Hash what the function computes, so that ranks with other code are found out."""
    code = getattr(function, "__code__", None)
    cells = [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
    parts = (_code_text(code) if code else repr(function), repr(cells), repr(rest))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def _code_text(code: CodeType) -> str:
    consts = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_code, consts, code.co_names, code.co_varnames))
