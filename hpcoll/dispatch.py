"""From a user's arguments to a run: check, look the recipe up or agree and make it, bind.

Recipes are kept by values that are equal on all ranks, so that all ranks find or
miss alike; a miss agrees with all ranks before any data moves. Bindings are local.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hpcoll.errors import (
    CollectiveTimeout,
    ConfigError,
    HpcollError,
    MismatchError,
    TransportError,
)
from hpcoll.kernels.dtypes import dtype_name
from hpcoll.runtime.arrays import Array, address_of, as_input, overlap
from hpcoll.runtime.call import Call, Caller, check_counts, check_root
from hpcoll.runtime.entry import Entry
from hpcoll.runtime.layout import message_nbytes
from hpcoll.runtime.plan import Binding, Plan, Request, check_timeout
from hpcoll.runtime.session import Session
from hpcoll.runtime.shortcut import Shortcuts
from hpcoll.schedule import registry
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS, collective_named
from hpcoll.schedule.ops import Op, resolve_op
from hpcoll.schedule.topology import Topology
from hpcoll.selection import Choice, choose


class Dispatcher:
    """Makes the calls of one communicator.

    Parameters
    ----------
    session : Session
        The communicator's runtime.
    topology : Topology
        Which ranks share a node.
    """

    def __init__(self, session: Session, topology: Topology) -> None:
        self.session = session
        self.topology = topology
        self._caller = Caller(session.rank, session.size)
        self._pins = dict(session.settings.algorithm)
        self._specs: dict[tuple[str, str], str] = {}
        self._entries: OrderedDict[tuple[Any, ...], Entry] = OrderedDict()
        self._shortcuts = Shortcuts(session)
        self._latest: Entry | None = None

    def run(
        self,
        name: str,
        x: object,
        out: Array | None,
        op: str | Op = "sum",
        root: int = 0,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Carry a call of equal counts out to its end, by a shortcut where there is one.

        Its result is None only where the collective's own annotation says so.
        """
        key: tuple[Any, ...] | None = None
        if (
            timeout is None and type(root) is int and (type(op) is str or isinstance(op, Op))
            and (algorithm is None or type(algorithm) is str)
        ):  # fmt: skip
            options = (name, op, root, algorithm)
            if type(x) is np.ndarray:
                if type(out) is np.ndarray:
                    key = (*options, x.shape, out.shape, x.dtype, out.dtype)
                elif out is None and root != self.session.rank:
                    key = (*options, x.shape, x.dtype)
            elif x is None and type(out) is np.ndarray:
                key = (*options, None, out.shape, out.dtype)
            elif name == "barrier":
                key = options
        if key is not None:
            known = self._shortcuts.run(key, x, out)
            if known is not None:
                if known is not self._latest:
                    self._latest = known
                    self._entries.move_to_end(known.key)
                return out  # type: ignore[return-value]
        return self.run_checked(
            name, x, out, key, op=op, root=root, algorithm=algorithm, timeout=timeout
        )

    def run_checked(
        self,
        name: str,
        x: object,
        out: Array | None,
        key: tuple[Any, ...] | None = None,
        **options: Any,
    ) -> Array:
        """Check a call, carry it out to its end, and remember it under `key`, if any."""
        self._latest = None
        entry, binding, limit = self._ready(name, x, out, **options)
        result = binding.execute(limit)
        entry.give_back(binding.run)
        bare = binding.source is x and binding.target is out and binding.result is out
        if key is not None and self._shortcuts.usable and bare:
            # The next call like this one takes the shortcut.
            self._shortcuts.remember(key, entry)
        return cast(Array, result)

    def start(self, name: str, x: object, out: Array | None, **options: Any) -> Request:
        """Start a call."""
        entry, binding, timeout_s = self._ready(name, x, out, **options)
        return binding.start(timeout_s).on_end(lambda: entry.give_back(binding.run))

    def plan(self, name: str, x: object, out: Array | None, **options: Any) -> Plan:
        """Make a persistent call; always agreed, even where the recipe is known."""
        entry, binding, timeout_s = self._ready(name, x, out, persistent=True, **options)
        return Plan(binding, entry.algorithm.spec, timeout_s)

    def explain(
        self,
        name: str,
        x: object,
        *,
        nbytes: int | None,
        dtype: str,
        op: str | Op,
        root: int,
        algorithm: str | None,
    ) -> Choice:
        """Say which algorithm would serve a call, and why."""
        base = collective_named(name).name
        if x is not None:
            array = as_input(x)
            whole = base in ("allgather", "gather")
            nbytes = array.nbytes * (self.session.size if whole else 1)
            dtype = dtype_name(array.dtype)
        operator = resolve_op(op) if COLLECTIVES[base].reduces else None
        pin = self._pin(base, algorithm)
        choice = self._choose(base, nbytes or 0, dtype, operator, root, pin)
        return replace(choice, transport=self.session.route)

    def agree(self, text: str, timeout_s: float | None = None) -> None:
        """Agree on something that runs nothing; it takes a call number."""
        self.session.check_usable()
        self.session.agree(text, None, timeout_s or self.session.settings.timeout_s)
        self.session.count(text)

    def _ready(
        self,
        name: str,
        x: object,
        out: Array | None,
        *,
        timeout: float | None = None,
        persistent: bool = False,
        **options: Any,
    ) -> tuple[Entry, Binding, float]:
        """Check, agree and bind. What stops this rank alone is told to the others."""
        session = self.session
        session.check_usable()
        try:
            limit = session.settings.timeout_s if timeout is None else check_timeout(timeout)
            entry, call = self._prepare(name, x, out, limit, persistent=persistent, **options)
            return entry, self._bind(entry, call, pooled=not persistent), limit
        except (MismatchError, TransportError, CollectiveTimeout):
            raise  # known to all, or past telling
        except HpcollError as error:
            session.refuse(error)
            raise
        except Exception as error:  # such as MemoryError
            session.refuse(HpcollError(f"{type(error).__name__}: {error}"))
            raise

    def _pin(self, base: str, algorithm: object) -> str | None:
        """The pinned algorithm in one spelling, so that all ranks keep recipes alike."""
        pin = self._pins.get(base) if algorithm is None else algorithm
        if pin is None or pin == "auto":
            return None
        if not isinstance(pin, str):
            raise ConfigError(f"algorithm must be a name such as 'ring' or 'auto', not {pin!r}")
        spec = self._specs.get((base, pin))
        if spec is None:
            spec = self._specs[base, pin] = registry.find(pin, base).asked
        return spec

    def _prepare(
        self,
        name: str,
        x: object,
        out: Array | None,
        timeout_s: float,
        *,
        op: str | Op = "sum",
        root: int = 0,
        counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        persistent: bool = False,
    ) -> tuple[Entry, Call]:
        """Check the arguments and find or make the recipe's entry."""
        size = self.session.size
        base = collective_named(name).name
        operator = resolve_op(op) if COLLECTIVES[base].reduces else None
        place = check_root(root, size) if COLLECTIVES[base].rooted else 0
        if counts is not None and name not in VECTOR_FORMS:
            raise ConfigError(f"{name} takes no counts: use a v-form, such as allgatherv")
        if recv_counts is not None and name != "alltoallv":
            raise ConfigError(f"{name} takes no recv_counts: only alltoallv does")
        rows = None if counts is None else check_counts(counts, size)
        pin = self._pin(base, algorithm)
        if name == "alltoallv":
            return self._counted(name, x, out, place, rows, recv_counts, pin, timeout_s, persistent)
        if name in VECTOR_FORMS and rows is None:
            if base not in ("allgather", "gather"):
                raise ConfigError(f"{name} needs counts: the rows of each rank")
            return self._counted(name, x, out, place, None, None, pin, timeout_s, persistent)
        call = self._caller.make(name, x, out, operator, place, rows)
        key = (base, call.counts, call.dtype, operator and operator.signature, place, pin)
        entry = self._entries.get(key)
        if entry is not None and not persistent:
            self._entries.move_to_end(key)
            return entry, call
        choice, text = self._choose_for(call, pin)
        if persistent:
            self.agree(f"plan of {text}", timeout_s=timeout_s)
        else:
            self.session.agree(text, None, timeout_s)
        return entry or self._keep(key, call, choice, text, timeout_s), call

    def _choose_for(self, call: Call, pin: str | None) -> tuple[Choice, str]:
        """The algorithm for a call, and the call in words."""
        nbytes = message_nbytes(call.collective, call.counts, call.dtype.itemsize)
        dtype = dtype_name(call.dtype)
        choice = self._choose(call.collective, nbytes, dtype, call.op, call.root, pin)
        return choice, _text(choice, call, dtype)

    def _keep(
        self, key: tuple[Any, ...], call: Call, choice: Choice, text: str, timeout_s: float
    ) -> Entry:
        """Make the entry of a call that all ranks agreed on, and keep it."""
        signature = self.session.sign(text)
        entry = Entry(self.session, self.topology, choice.algorithm, call, signature, key)
        if entry.shared:
            places = f"places for {text}"
            brought = self.session.agree(places, entry.tell(), timeout_s)
            self.session.count(places)
            entry.hear(brought)
        self._entries[key] = entry
        while len(self._entries) > self.session.settings.cache_size:
            _, evicted = self._entries.popitem(last=False)
            self._shortcuts.forget(evicted)
        return entry

    def _counted(
        self,
        name: str,
        x: object,
        out: Array | None,
        root: int,
        rows: tuple[int, ...] | None,
        recv_counts: Sequence[int] | None,
        pin: str | None,
        timeout_s: float,
        persistent: bool,
    ) -> tuple[Entry, Call]:
        """Exchange counts, and with them agree on the call."""
        session = self.session
        base = VECTOR_FORMS[name]
        array = as_input(x)
        self._caller.rows(array, name)
        rest = array.shape[1:]
        text = f"{name} of {dtype_name(array.dtype)} rows of shape {rest}"
        text += f", root {root}" if COLLECTIVES[base].rooted else ""
        text += f", {pin}" if pin else ""
        text = f"plan of {text}" if persistent else text
        if name == "alltoallv":
            expected = None
            if recv_counts is not None:
                expected = check_counts(recv_counts, session.size, "recv_counts")
            if rows is None:
                raise ConfigError("alltoallv needs send_counts: the rows for each rank")
            self._caller.check_rows(array, rows, "send_counts")
            brought = session.agree(text, [rows, expected], timeout_s)
            matrix = tuple(tuple(brought[r][0]) for r in range(session.size))
            _check_pairs(matrix, {r: b[1] for r, b in brought.items()})
            call = self._caller.alltoallv(array, out, matrix)
        else:
            brought = session.agree(text, array.shape[0], timeout_s)
            shared = tuple(int(brought[r]) for r in range(session.size))
            call = self._caller.make(name, array, out, None, root, shared)
        if persistent:
            session.count(text)
        key = (base, call.counts, call.dtype, None, root, pin, name)
        entry = self._entries.get(key)
        return entry or self._keep(key, call, *self._choose_for(call, pin), timeout_s), call

    def _choose(
        self, base: str, nbytes: int, dtype: str, op: Op | None, root: int, pin: str | None
    ) -> Choice:
        return choose(
            base,
            self.session.size,
            nbytes,
            dtype=dtype,
            op=op,
            root=root,
            pinned=pin,
            topology=self.topology,
            crowded=self.session.crowded,
            transport=self.session.channel.name,
        )

    def _bind(self, entry: Entry, call: Call, *, pooled: bool) -> Binding:
        """Bind a recipe to the call's arrays."""
        source, target = call.source, call.target
        pack = unpack = None
        aliased = apart = False
        if target is not None and not target.flags.c_contiguous:
            packed = np.empty(target.shape, target.dtype)
            unpack, target = (target, packed), packed
        elif source is not None and target is not None and overlap(source, target):
            shift = address_of(source) - address_of(target)
            in_place = shift == entry.in_place_at and entry.may_alias
            aliased = in_place and source.flags.c_contiguous
            apart = not aliased
        if source is not None and (apart or not source.flags.c_contiguous):
            packed = np.empty(source.shape, source.dtype)
            pack, source = (packed, source), packed
        run = entry.take(aliased=aliased, pooled=pooled)
        return Binding(self.session, run, entry.name, source, target, call.result, pack, unpack)


def _check_pairs(matrix: tuple[tuple[int, ...], ...], expected: dict[int, Any]) -> None:
    """Hold what each rank expects against what the others send; equal on all ranks."""
    for rank in sorted(expected):
        column = expected[rank]
        if column is None:
            continue
        for source, n in enumerate(column):
            if matrix[source][rank] != n:
                raise MismatchError(
                    f"alltoallv: rank {source} sends {matrix[source][rank]} rows to rank {rank}, "
                    f"which expects {n}"
                )


def _text(choice: Choice, call: Call, dtype: str) -> str:
    """A call in words that are equal on two ranks only if the calls match."""
    counts: Any = call.counts
    same = len({v for row in counts for v in (row if isinstance(row, tuple) else (row,))}) == 1
    if call.collective == "barrier":
        size = ""
    elif len(counts) == 1:
        size = f" of {counts[0]} {dtype}"
    elif same:
        first = counts[0][0] if isinstance(counts[0], tuple) else counts[0]
        size = f" of {len(counts)} x {first} {dtype}"
    elif len(counts) <= 8 and not isinstance(counts[0], tuple):
        size = f" of {list(counts)} {dtype}"
    else:
        digest = hashlib.blake2b(repr(counts).encode(), digest_size=6).hexdigest()
        size = f" of unequal counts (digest {digest}) {dtype}"
    op = f", op {call.op.signature}" if call.op else ""
    root = f", root {call.root}" if COLLECTIVES[call.collective].rooted else ""
    return f"{choice.algorithm.spec}{size}{op}{root} [{choice.algorithm.digest}]"
