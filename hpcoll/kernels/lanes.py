"""LLVM code of one vector of elements: load it, combine two, store it.

A kernel is named by a spec such as ``"sum/float32"``: an operator and a format.
Many pairs of operator and dtype share one: see `spec_of`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from hpcoll.kernels.dtypes import HALVES, dtype_name
from hpcoll.kernels.halves import F32, half_format, narrow, splat, widen
from hpcoll.kernels.intrinsics import as_pointer

_BOOL = {
    **dict.fromkeys(("sum", "max", "lor", "bor"), "lor"),
    **dict.fromkeys(("prod", "min", "land", "band"), "land"),
    **dict.fromkeys(("lxor", "bxor"), "lxor"),
}
_LOGICAL = ("land", "lor", "lxor")
_BITWISE = {"band": "and_", "bor": "or_", "bxor": "xor"}
_BITWISE |= {"land": "and_", "lor": "or_", "lxor": "xor"}


def spec_of(op_name: str, dtype: np.dtype[Any]) -> str:
    """Return the spec of the kernel that serves a built-in operator on a dtype.

    ``avg`` adds, bool has three operators, a sum of complex numbers is one of twice
    as many floats, and the sign of an integer matters for ``min`` and ``max`` only.
    """
    name = dtype_name(dtype)
    op_name = "sum" if op_name == "avg" else op_name
    if name == "bool":
        return f"{_BOOL[op_name]}/int8"
    if name.startswith("complex") and op_name in ("sum", "div"):
        return f"{op_name}/float{dtype.itemsize * 4}"
    if name.startswith("uint") and op_name not in ("min", "max"):
        return f"{op_name}/{name[1:]}"
    return f"{op_name}/{half_format(name)}"


class Lanes:
    """Code for vectors of one length of one spec.

    A vector in flight is a list of LLVM values: two, real and imaginary parts, for a
    product of complex numbers, else one. Logical operators work on masks.

    Parameters
    ----------
    spec : str
        Operator and format, from `spec_of`.
    nbytes : int
        Bytes of the vector in memory; the size of an element for a single one.
    """

    def __init__(self, spec: str, nbytes: int) -> None:
        self.op, self.format = spec.split("/")[:2]
        self.half = self.format.removesuffix("soft") in HALVES
        self.complex = self.format.startswith("complex")
        self.floating = "float" in self.format
        bits = int("".join(c for c in self.format if c.isdigit()))
        self.element_bytes = bits // 8
        # One AVX register of masks, or of halves made wide: LLVM splits larger ones badly.
        self.vector_bytes = 32 if self.op in _LOGICAL else 16 if self.half else 64
        self.count = max(1, nbytes // self.element_bytes)
        integer = ir.IntType(bits // 2 if self.complex else bits)
        self.element = integer
        if not self.half and self.op not in _LOGICAL and (self.floating or self.complex):
            self.element = F32 if integer.width == 32 else ir.DoubleType()
        self.masks = ir.VectorType(integer, self.count)

    def load(self, builder: Any, address: Any) -> list[Any]:
        """Read a vector; its address need not be aligned to more than an element."""
        n = self.count
        memory = ir.VectorType(self.element, n * 2 if self.complex else n)
        vector = builder.load(
            as_pointer(builder, address, memory), typ=memory, align=self._alignment()
        )
        parts = [vector]
        if self.complex:
            undefined = ir.Constant(memory, ir.Undefined)
            parts = [
                builder.shuffle_vector(vector, undefined, _order(range(first, 2 * n, 2)))
                for first in (0, 1)
            ]
        if self.op in _LOGICAL:
            return [self._truth(builder, parts)]
        return [widen(builder, vector, self.format)] if self.half else parts

    def combine(self, builder: Any, a: list[Any], b: list[Any]) -> list[Any]:
        """Return ``a op b``."""
        if self.op in _BITWISE:
            return [getattr(builder, _BITWISE[self.op])(a[0], b[0])]
        real = self.floating or self.complex
        if self.op == "sum":
            return [(builder.fadd if real else builder.add)(a[0], b[0])]
        if self.op == "prod" and self.complex:
            return self._complex_product(builder, *a, *b)
        if self.op == "prod":
            return [(builder.fmul if real else builder.mul)(a[0], b[0])]
        return [self._extreme(builder, a[0], b[0])]

    def store(self, builder: Any, address: Any, value: list[Any]) -> None:
        """Write a vector, rounded to the format of the memory."""
        parts = value
        if self.op in _LOGICAL:
            zero = splat(self.masks.element, 0, self.count)
            true = builder.icmp_unsigned("!=", value[0], zero)
            one = splat(self.masks.element, self._one(), self.count)
            parts = [builder.select(true, one, zero)]
            if self.complex:
                parts.append(zero)
        elif self.half:
            parts = [narrow(builder, value[0], self.format)]
        vector = parts[0]
        if self.complex:
            n = self.count
            order = _order([i for k in range(n) for i in (k, n + k)])
            vector = builder.shuffle_vector(parts[0], parts[1], order)
        builder.store(vector, as_pointer(builder, address, vector.type), align=self._alignment())

    def divide(self, builder: Any, value: list[Any], divisor: Any) -> list[Any]:
        """Return `value` divided by an i64, which is rounded to the format first."""
        element = F32 if self.half else self.element
        vector = ir.Constant(ir.VectorType(element, self.count), ir.Undefined)
        scalar = builder.sitofp(divisor, element)
        for lane in range(self.count):
            vector = builder.insert_element(vector, scalar, ir.IntType(32)(lane))
        return [builder.fdiv(value[0], vector)]

    def _alignment(self) -> int:
        return self.element_bytes // 2 if self.complex else self.element_bytes

    def _truth(self, builder: Any, parts: list[Any]) -> Any:
        zero = splat(self.masks.element, 0, self.count)
        bits = builder.or_(*parts) if self.complex else parts[0]
        if self.floating or self.complex:
            # Everything but the sign: minus zero is false, NaN is true.
            bits = builder.shl(bits, splat(self.masks.element, 1, self.count))
        return builder.sext(builder.icmp_unsigned("!=", bits, zero), self.masks)

    def _one(self) -> int:
        if self.format == "bfloat16":
            return 0x3F80
        if self.half:
            return 0x3C00
        if self.floating or self.complex:
            return 0x3F800000 if self.masks.element.width == 32 else 0x3FF0000000000000
        return 1

    def _extreme(self, builder: Any, a: Any, b: Any) -> Any:
        sign = "<" if self.op == "min" else ">"
        if not self.floating:
            signed = not self.format.startswith("u")
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(sign, a, b), a, b)
        # Unordered: a NaN in either gives a; then one in b gives b.
        result = builder.select(builder.fcmp_unordered(sign, a, b), a, b)
        return builder.select(builder.fcmp_unordered("uno", b, b), b, result)

    @staticmethod
    def _complex_product(builder: Any, a: Any, ai: Any, b: Any, bi: Any) -> list[Any]:
        real = builder.fsub(builder.fmul(a, b), builder.fmul(ai, bi))
        imaginary = builder.fadd(builder.fmul(a, bi), builder.fmul(ai, b))
        return [real, imaginary]


def _order(indices: Any) -> Any:
    lanes = list(indices)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
