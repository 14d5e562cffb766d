"""Intrinsics that fold or divide whole arrays, block by block.

The loops are LLVM code rather than Python, which numba takes twice as long to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from hpcoll.kernels.intrinsics import I64, as_pointer, cgutils
from hpcoll.kernels.lanes import Lanes

_LINE = 32

Values = list[list[Any]]
"""What the vectors of a block hold."""


def _literal_intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(prefer_literal=True)(function)


@_literal_intrinsic
def fold_all(typingctx: Any, spec: Any, dst: Any, table: Any, noperands: Any, nbytes: Any) -> Any:
    """fold_all(spec, dst, table, noperands, nbytes): one pass over all operands."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = spec.literal_value
        _, target, operands, count, size = args
        at = cgutils.alloca_once_value(builder, I64(0))
        block = _Block(name, _block_bytes(name))
        # Two operands are most of what there is, and need no inner loop.
        with builder.if_then(builder.icmp_signed("==", count, I64(2))):
            first, second = _operand(builder, operands, I64(0)), _operand(builder, operands, I64(1))
            with _blocks(builder, at, size, block.nbytes) as offset:
                left = block.load(builder, builder.add(first, offset))
                right = block.load(builder, builder.add(second, offset))
                total = block.combine(builder, left, right)
                block.store(builder, builder.add(target, offset), total)
        for part in (block, _Block(name, _LINE), _Block(name, block.element_bytes)):
            with _blocks(builder, at, size, part.nbytes) as offset:
                total = _fold(builder, part, operands, count, offset)
                part.store(builder, builder.add(target, offset), total)
        return context.get_dummy_value()

    return types.void(spec, types.int64, types.int64, types.int64, types.int64), codegen


@_literal_intrinsic
def divide_all(typingctx: Any, spec: Any, dst: Any, table: Any, divisor: Any, nbytes: Any) -> Any:
    """divide_all(spec, dst, table, divisor, nbytes): divide the one array in the table."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = spec.literal_value
        _, target, operands, number, size = args
        at = cgutils.alloca_once_value(builder, I64(0))
        source = _operand(builder, operands, I64(0))
        block = _Block(name, _block_bytes(name))
        for part in (block, _Block(name, block.element_bytes)):
            with _blocks(builder, at, size, part.nbytes) as offset:
                values = part.load(builder, builder.add(source, offset))
                quotient = [part.lanes.divide(builder, value, number) for value in values]
                part.store(builder, builder.add(target, offset), quotient)
        return context.get_dummy_value()

    return types.void(spec, types.int64, types.int64, types.int64, types.int64), codegen


class _Block:
    """As many vectors as are folded at a time."""

    def __init__(self, spec: str, nbytes: int) -> None:
        self.nbytes = nbytes
        width = min(nbytes, Lanes(spec, 1).vector_bytes)
        self.lanes = Lanes(spec, width)
        self.element_bytes = self.lanes.element_bytes
        self.offsets = [I64(at) for at in range(0, nbytes, width)]

    def load(self, builder: Any, address: Any) -> Values:
        return [self.lanes.load(builder, builder.add(address, at)) for at in self.offsets]

    def combine(self, builder: Any, a: Values, b: Values) -> Values:
        return [self.lanes.combine(builder, x, y) for x, y in zip(a, b, strict=True)]

    def store(self, builder: Any, address: Any, values: Values) -> None:
        for at, value in zip(self.offsets, values, strict=True):
            self.lanes.store(builder, builder.add(address, at), value)


def _block_bytes(spec: str) -> int:
    # As much as the registers hold; 16-bit floats take twice their size in them.
    return 128 if Lanes(spec, 1).half else 256


def _operand(builder: Any, table: Any, k: Any) -> Any:
    entry = as_pointer(builder, builder.add(table, builder.shl(k, I64(3))), I64)
    return builder.load(entry, typ=I64)


@contextmanager
def _blocks(builder: Any, at: Any, nbytes: Any, step: int) -> Iterator[Any]:
    """Emit ``while at + step <= nbytes: BODY; at += step``; gives the body `at`."""
    head = builder.append_basic_block("head")
    body = builder.append_basic_block("block")
    after = builder.append_basic_block("rest")
    builder.branch(head)
    builder.position_at_end(head)
    offset = builder.load(at)
    following = builder.add(offset, I64(step))
    builder.cbranch(builder.icmp_signed("<=", following, nbytes), body, after)
    builder.position_at_end(body)
    yield offset
    builder.store(following, at)
    builder.branch(head)
    builder.position_at_end(after)


def _fold(builder: Any, block: _Block, table: Any, count: Any, offset: Any) -> Values:
    """Emit the loop over the operands of one block, with the sums in registers."""

    def operand(k: Any) -> Values:
        return block.load(builder, builder.add(_operand(builder, table, k), offset))

    def phis(values: Values) -> Values:
        return [[builder.phi(value.type) for value in vector] for vector in values]

    first = operand(I64(0))
    before = builder.block
    body = builder.append_basic_block("operand")
    after = builder.append_basic_block("folded")
    builder.cbranch(builder.icmp_signed(">", count, I64(1)), body, after)

    builder.position_at_end(body)
    k, sums = builder.phi(I64), phis(first)
    added = block.combine(builder, sums, operand(k))
    following = builder.add(k, I64(1))
    builder.cbranch(builder.icmp_signed("<", following, count), body, after)

    builder.position_at_end(after)
    totals = phis(first)
    starts, ends = [[I64(1)], *first, *first], [[following], *added, *added]
    for targets, start, end in zip([[k], *sums, *totals], starts, ends, strict=True):
        for phi, initial, later in zip(targets, start, end, strict=True):
            phi.add_incoming(initial, before)
            phi.add_incoming(later, body)
    return totals
