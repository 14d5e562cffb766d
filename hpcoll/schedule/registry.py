"""The algorithms that are known, and how one gets in.

A file in ``hpcoll/algorithms``, an entry point in group ``hpcoll.algorithms`` or a file
given to `load_file` is enough; each registers with the `algorithm` decorator.
Nothing is imported before the first look-up.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from hpcoll.errors import RegistryError
from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS, collective_named
from hpcoll.schedule.problem import Problem

F = TypeVar("F", bound="Callable[..., Iterator[Any]]")

ENTRY_POINT_GROUP = "hpcoll.algorithms"
_algorithms: dict[str, Algorithm] = {}
_by_function: dict[Callable[..., Any], Algorithm] = {}
_loaded = False


def _always(p: Problem) -> str | None:
    return None


def _one_chunk(p: Problem) -> int:
    return p.size if COLLECTIVES[p.collective].owned else 1


def algorithm(
    collective: str,
    *,
    name: str | None = None,
    chunks: Callable[..., int] | None = None,
    when: Callable[..., str | None] = _always,
    source: str = "",
) -> Callable[[F], F]:
    """Register a generator function as an algorithm for a collective.

    Parameters
    ----------
    collective : str
        Such as ``"allreduce"``.
    name : str, optional
        Name in the registry; the function's own by default.
    chunks : callable, optional
        Number of chunks that the message is cut into, from the problem and from those
        tunables that it names as keywords. By default one, or one for each rank where
        the collective's chunks have owners.
    when : callable, optional
        ``when(p)``, or with tunables as keywords: the reason why the algorithm can't
        serve a problem, or None.
    source : str
        The paper, as a DOI where there is one.

    Raises
    ------
    RegistryError
        If there is no such collective or the name is taken.
    """
    if collective not in COLLECTIVES:
        raise RegistryError(
            f"no collective {collective!r} to register for: use one of {', '.join(COLLECTIVES)}"
        )

    def register(function: F) -> F:
        tunables = tuple(tunables_of(function).items())
        for key, default in tunables:
            if not isinstance(default, int):
                raise RegistryError(f"{collective}/{function.__name__}: {key} needs an int default")
        new = Algorithm(
            collective,
            name or function.__name__,
            function,
            chunks or _one_chunk,
            when,
            source,
            tunables,
            f"{function.__module__}:{function.__code__.co_filename}",
            inspect.getdoc(function) or "",
        )
        add(new)
        _by_function[function] = new
        return function

    return register


def tunables_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only parameters of a function, with their defaults."""
    return {
        q.name: q.default
        for q in inspect.signature(function).parameters.values()
        if q.kind is inspect.Parameter.KEYWORD_ONLY
    }


def register(combined: Algorithm, *, name: str, source: str = "", doc: str = "") -> Algorithm:
    """Register a combination of algorithms under a name, and return it.

    Parameters
    ----------
    combined : Algorithm
        Made by one of `hpcoll.schedule.combinators`.
    name : str
        Name in the registry.
    source : str
        The paper; by default those of its parts.
    doc : str
        What it does.

    Raises
    ------
    RegistryError
        If the name is taken.
    """
    caller = sys._getframe(1)
    new = replace(
        combined,
        name=name,
        source=source or combined.source,
        doc=doc or combined.doc,
        origin=f"{caller.f_globals['__name__']}:{caller.f_code.co_filename}",
    )
    add(new)
    return new


def registered(part: Algorithm | Callable[..., Any]) -> Algorithm:
    """The algorithm that a decorated function became.

    Raises
    ------
    RegistryError
        If it was never registered.
    """
    if isinstance(part, Algorithm):
        return part
    found = _by_function.get(part)
    if found is None:
        raise RegistryError(f"{part!r} is not registered: use the @algorithm decorator")
    return found


def add(new: Algorithm) -> None:
    """Put an algorithm into the registry.

    Raises
    ------
    RegistryError
        If another one has its name.
    """
    taken = _algorithms.get(new.full_name)
    if taken is not None:
        raise RegistryError(
            f"{new.full_name} is registered twice: by {taken.origin} and by {new.origin}"
        )
    _algorithms[new.full_name] = new


def add_native(collective: str) -> None:
    """Register the communication library's own collective, which has no schedule."""
    text = f"The communication library's own {collective}."
    add(Algorithm(collective, "native", None, _one_chunk, _always, "", (), "native", text))


def load_all() -> None:
    """Import the built-in algorithms and those of entry points, once.

    Raises
    ------
    RegistryError
        If an entry point can't be imported; the message names its package.
    """
    global _loaded
    if _loaded:
        return
    package = importlib.import_module("hpcoll.algorithms")
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"hpcoll.algorithms.{module}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry.load()
        except RegistryError:
            raise
        except Exception as error:
            raise RegistryError(
                f"entry point {entry.name} = {entry.value} can't be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
    _loaded = True


def load_file(path: str | Path) -> list[Algorithm]:
    """Import a Python file that registers algorithms, and return them.

    Raises
    ------
    RegistryError
        If the file is missing, fails, registers nothing, or a name is taken.
    """
    load_all()
    file = Path(path).resolve()
    if not file.is_file():
        raise RegistryError(f"no file {str(path)!r} to load algorithms from")
    module_name = f"hpcoll_loaded_{file.stem}_{abs(hash(str(file)))}"
    if module_name in sys.modules:
        return [a for a in _algorithms.values() if a.origin.endswith(f":{file}")]
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise RegistryError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = dict(_algorithms)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        found = [a for key, a in _algorithms.items() if key not in before]
        if not found:
            raise RegistryError(f"{path} registers no algorithm: use the @algorithm decorator")
    except Exception as error:
        # Nothing of a file that failed stays, so that it can be loaded once it is mended.
        sys.modules.pop(module_name)
        _algorithms.clear()
        _algorithms.update(before)
        if isinstance(error, RegistryError):
            raise
        raise RegistryError(f"{path} can't be loaded: {type(error).__name__}: {error}") from error
    return found


def algorithms(collective: str | None = None) -> list[Algorithm]:
    """All algorithms, or those of one collective, by name."""
    load_all()
    wanted = collective_named(collective).name if collective else None
    order = list(COLLECTIVES)
    found = [a for a in _algorithms.values() if wanted in (None, a.collective)]
    return sorted(found, key=lambda a: (order.index(a.collective), a.native, a.name))


def find(spec: str, collective: str | None = None) -> Algorithm:
    """The algorithm that a text names.

    Parameters
    ----------
    spec : str
        ``"allreduce/ring"``, or ``"ring"`` where `collective` is given, with
        tunables as in ``"allgather/bruck:radix=3"``.
    collective : str, optional
        The collective it must serve.

    Raises
    ------
    RegistryError
        If there is none; the message offers names that are close.
    """
    load_all()
    base, _, settings = spec.partition(":")
    if "/" not in base:
        if collective is None:
            raise RegistryError(f"{spec!r} must be written as collective/algorithm")
        base = f"{collective_named(collective).name}/{base}"
    kind, _, name = base.partition("/")
    kind = VECTOR_FORMS.get(kind, kind)
    base = f"{kind}/{name}"
    found = _algorithms.get(base)
    if found is None:
        known = [a.name for a in _algorithms.values() if a.collective == kind]
        near = [f"{kind}/{n}" for n in get_close_matches(name, known, n=1, cutoff=0.6)]
        near = near or get_close_matches(base, _algorithms, n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]}?" if near else ""
        has = f" ({kind} has: {', '.join(sorted(known))})" if known else ""
        raise RegistryError(f"no algorithm {base!r}{hint}{has}")
    if collective is not None and found.collective != collective_named(collective).name:
        raise RegistryError(f"{found.full_name} is no algorithm for {collective}")
    values = _tunables(spec, settings)
    if any(len(several) > 1 for several in values.values()):
        raise RegistryError(f"{spec!r} names several values of a tunable: give one")
    one = {key: several[0] for key, several in values.items()}
    return found.tuned(**one) if one else found


def find_all(spec: str, collective: str | None = None) -> list[Algorithm]:
    """The algorithms that a text names with several values of its tunables.

    ``"alltoall/bruck:radix=2,3,4"`` are three; with values of several tunables, as in
    ``"x:segments=1,4,radix=2,3"``, each goes with each. Otherwise as `find`.
    """
    base, _, settings = spec.partition(":")
    found = find(base, collective)
    values = _tunables(spec, settings)
    return [
        found.tuned(**dict(zip(values, chosen, strict=True))) if values else found
        for chosen in product(*map(dict.fromkeys, values.values()))
    ]


def _tunables(spec: str, settings: str) -> dict[str, list[int]]:
    """Read ``a=1,2,b=3``: a value without a name is one more of the tunable before it."""
    values: dict[str, list[int]] = {}
    key = ""
    for part in filter(None, settings.split(",")):
        name, given, text = part.rpartition("=")
        key = name.strip() if given else key
        if not key or not re.fullmatch(r"\s*-?[0-9]{1,9}\s*", text):
            raise RegistryError(f"{spec!r}: write tunables as name=integer, not {part!r}")
        values.setdefault(key, []).append(int(text))
    return values
