"""Machine-level building blocks for compiled code that works on addresses.

Addresses and values are int64 throughout, so that one signature serves every
dtype and every library. Call these from functions compiled by numba only; all of
them can be cached on disk. Keep them in module globals: an intrinsic held in a
closure would change the cache key in every process.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic

cgutils: Any = _cgutils
"""numba's, whose annotations are partial."""

I32 = ir.IntType(32)
I64 = ir.IntType(64)

memcpy: Any = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
"""memcpy(target, source, nbytes)"""

sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())
"""sched_yield()"""

syscall: Any = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))
"""syscall(number, a, b, c, d, e, f)"""

process_vm_readv: Any = types.ExternalFunction("process_vm_readv", types.int64(*[types.int64] * 6))
"""process_vm_readv(pid, local vectors, their number, remote vectors, their number, flags)"""

usleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))
"""usleep(microseconds)"""


def _intrinsic(function: Callable[..., Any]) -> Any:
    """Register `function`; typed, unlike numba's own decorator."""
    return intrinsic(function)


def as_pointer(builder: Any, address: Any, pointee: Any) -> Any:
    """Return an int64 address as an LLVM pointer."""
    return builder.inttoptr(address, ir.PointerType(pointee))


def _load(ordering: str) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(as_pointer(builder, args[0], I64), ordering, 8, typ=I64)

    return codegen


def _store(ordering: str) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], as_pointer(builder, args[0], I64), ordering, 8)
        return context.get_dummy_value()

    return codegen


@_intrinsic
def load64(typingctx: Any, address: Any) -> Any:
    """load64(address) -> int64: never torn, never invented, otherwise unordered."""
    return types.int64(types.int64), _load("monotonic")


@_intrinsic
def store64(typingctx: Any, address: Any, value: Any) -> Any:
    """store64(address, value): never torn, otherwise unordered."""
    return types.void(types.int64, types.int64), _store("monotonic")


@_intrinsic
def load_acquire(typingctx: Any, address: Any) -> Any:
    """load_acquire(address) -> int64: what is read after it was written before."""
    return types.int64(types.int64), _load("acquire")


@_intrinsic
def store_release(typingctx: Any, address: Any, value: Any) -> Any:
    """store_release(address, value): shown only after all that was written before."""
    return types.void(types.int64, types.int64), _store("release")


@_intrinsic
def fetch_add(typingctx: Any, address: Any, value: Any) -> Any:
    """fetch_add(address, value) -> int64: add atomically; return what was there before."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", as_pointer(builder, args[0], I64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@_intrinsic
def pause(typingctx: Any) -> Any:
    """pause(): tell the processor that this is a waiting loop."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        machine = platform.machine().lower()
        void = ir.FunctionType(ir.VoidType(), [])
        if machine in ("x86_64", "amd64", "i686"):
            function = cgutils.get_or_insert_function(builder.module, void, "llvm.x86.sse2.pause")
            builder.call(function, [])
        else:
            text = "isb" if machine in ("aarch64", "arm64") else ""
            builder.asm(void, text, "~{memory}", [], True)
        return context.get_dummy_value()

    return types.void(), codegen


@_intrinsic
def stream_lines(typingctx: Any, target: Any, source: Any, lines: Any) -> Any:
    """stream_lines(target, source, lines): copy lines of 64 bytes past the caches.

    The target begins on a line. Others may see the stores late and in any order:
    `stores_done` must come before the word that announces them. At least one line.
    """
    line = ir.VectorType(I64, 8)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target, source, lines = args
        begin = builder.block
        loop, end = (builder.function.append_basic_block() for _ in range(2))
        builder.branch(loop)
        builder.position_at_end(loop)
        at = builder.phi(I64)
        at.add_incoming(I64(0), begin)
        value = builder.load(as_pointer(builder, builder.add(source, at), line), typ=line, align=1)
        store = builder.store(value, as_pointer(builder, builder.add(target, at), line), align=64)
        store.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
        after = builder.add(at, I64(64))
        at.add_incoming(after, loop)
        more = builder.icmp_signed("<", after, builder.mul(lines, I64(64)))
        builder.cbranch(more, loop, end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@_intrinsic
def stores_done(typingctx: Any) -> Any:
    """stores_done(): what was stored before, streams too, is seen before what comes next."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64", "i686"):
            void = ir.FunctionType(ir.VoidType(), [])
            function = cgutils.get_or_insert_function(builder.module, void, "llvm.x86.sse.sfence")
            builder.call(function, [])
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@_intrinsic
def fence(typingctx: Any) -> Any:
    """fence(): all stores before it are seen before anything after it begins."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@_intrinsic
def cycles(typingctx: Any) -> Any:
    """cycles() -> int64: the processor's counter, for short times on one core."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(I64, [])
        name = "llvm.readcyclecounter"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])

    return types.int64(), codegen


@_intrinsic
def now_ns(typingctx: Any) -> Any:
    """now_ns() -> int64: the monotonic clock, which all processes of a node share."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # struct timespec is two 64-bit words wherever addresses have 64 bits.
        spec = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))
        address = builder.ptrtoint(spec, I64)
        kind = ir.FunctionType(I32, [I32, I64])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(function, [I32(time.CLOCK_MONOTONIC), address])
        seconds = builder.load(as_pointer(builder, address, I64), typ=I64)
        after = builder.add(address, I64(8))
        nanoseconds = builder.load(as_pointer(builder, after, I64), typ=I64)
        return builder.add(builder.mul(seconds, I64(1_000_000_000)), nanoseconds)

    return types.int64(), codegen


@_intrinsic
def alloca64(typingctx: Any, words: Any) -> Any:
    """alloca64(words) -> int64: address of a constant number of words on the stack.

    They live until the function returns, and are the same words in every iteration.
    """
    if not isinstance(words, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(
            cgutils.alloca_once(builder, ir.ArrayType(I64, words.literal_value)), I64
        )

    return types.int64(words), codegen


def make_call(nargs: int) -> Any:
    """Make ``call(function, a, b, ...) -> int64`` of a C function's address.

    Parameters
    ----------
    nargs : int
        Number of int64 arguments that the C function takes.

    Returns
    -------
    intrinsic
        The C function's ``int`` result is sign-extended.
    """
    return _make_call(nargs, True)


def make_call_void(nargs: int) -> Any:
    """Make ``call(function, a, b, ...)`` of the address of a C function without result."""
    return _make_call(nargs, False)


def _make_call(nargs: int, returns: bool) -> Any:
    def call(typingctx: Any, function: Any, *arguments: Any) -> Any:
        result = types.int64 if returns else types.void
        return result(*[types.int64] * (nargs + 1)), codegen

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(I32 if returns else ir.VoidType(), [I64] * nargs)
        result = builder.call(as_pointer(builder, args[0], kind), args[1:])
        return builder.sext(result, I64) if returns else context.get_dummy_value()

    # numba maps arguments by the signature, and doesn't take a star for one.
    names = ["typingctx", "function", *(f"a{k}" for k in range(nargs))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return _intrinsic(call)
