"""LLVM code that turns 16-bit floats into float32 and back.

Values are vectors of i16 and of float. Nothing here needs a library call, which a
just-in-time compiler could not resolve.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba.core.registry import cpu_target

I16 = ir.IntType(16)
I32 = ir.IntType(32)
F32 = ir.FloatType()


def half_format(name: str) -> str:
    """Return how this machine converts a dtype: the name, or ``"float16soft"``.

    numba's own view of the processor decides, since it may be told to build for
    another one.
    """
    if name != "float16" or platform.machine().lower() in ("aarch64", "arm64"):
        return name
    features = cpu_target.target_context.codegen().magic_tuple()[-1]
    return "float16" if "+f16c" in str(features).split(",") else "float16soft"


def splat(kind: Any, value: int, count: int) -> Any:
    """Return a constant vector of `count` equal integers."""
    return ir.Constant(ir.VectorType(kind, count), [value] * count)


def widen(builder: Any, bits: Any, form: str) -> Any:
    """Return 16-bit floats, given as a vector of i16, as a vector of float32."""
    count = bits.type.count
    floats = ir.VectorType(F32, count)
    if form == "float16":
        return builder.fpext(builder.bitcast(bits, ir.VectorType(ir.HalfType(), count)), floats)
    wide = builder.zext(bits, ir.VectorType(I32, count))
    if form == "bfloat16":
        return builder.bitcast(builder.shl(wide, splat(I32, 16, count)), floats)
    return _float16_up(builder, wide, floats, count)


def narrow(builder: Any, values: Any, form: str) -> Any:
    """Return float32 values rounded to 16-bit floats (ties to even), as a vector of i16."""
    count = values.type.count
    shorts = ir.VectorType(I16, count)
    if form == "float16":
        halves = builder.fptrunc(values, ir.VectorType(ir.HalfType(), count))
        return builder.bitcast(halves, shorts)
    bits = builder.bitcast(values, ir.VectorType(I32, count))
    down = _bfloat16_down if form == "bfloat16" else _float16_down
    return builder.trunc(down(builder, bits, values, count), shorts)


def _bfloat16_down(builder: Any, bits: Any, values: Any, count: int) -> Any:
    def word(value: int) -> Any:
        return splat(I32, value, count)

    top = builder.lshr(bits, word(16))
    # Half a unit in the last place, less a bit where the kept part is even.
    bias = builder.add(builder.and_(top, word(1)), word(0x7FFF))
    rounded = builder.lshr(builder.add(bits, bias), word(16))
    is_nan = builder.fcmp_unordered("uno", values, values)
    return builder.select(is_nan, builder.or_(top, word(0x40)), rounded)


def _float16_up(builder: Any, wide: Any, floats: Any, count: int) -> Any:
    def word(value: int) -> Any:
        return splat(I32, value, count)

    infinite = word(0x7C00 << 13)
    shifted = builder.shl(builder.and_(wide, word(0x7FFF)), word(13))
    exponent = builder.and_(shifted, infinite)
    normal = builder.add(shifted, word((127 - 15) << 23))
    special = builder.add(normal, word((128 - 16) << 23))
    # A subnormal is read as a number with a fixed exponent, which is then taken away.
    magic = builder.bitcast(word(113 << 23), floats)
    raised = builder.bitcast(builder.add(normal, word(1 << 23)), floats)
    small = builder.bitcast(builder.fsub(raised, magic), wide.type)
    result = builder.select(builder.icmp_unsigned("==", exponent, infinite), special, normal)
    result = builder.select(builder.icmp_unsigned("==", exponent, word(0)), small, result)
    sign = builder.shl(builder.and_(wide, word(0x8000)), word(16))
    return builder.bitcast(builder.or_(result, sign), floats)


def _float16_down(builder: Any, bits: Any, values: Any, count: int) -> Any:
    def word(value: int) -> Any:
        return splat(I32, value, count)

    floats = values.type
    sign = builder.and_(bits, word(0x80000000))
    size = builder.xor(bits, sign)
    is_nan = builder.icmp_unsigned(">", size, word(0x7F800000))
    special = builder.select(is_nan, word(0x7E00), word(0x7C00))
    # Adding this number makes the adder itself round a subnormal at the right place.
    magic = word(((127 - 15) + (23 - 10) + 1) << 23)
    sum_ = builder.fadd(builder.bitcast(size, floats), builder.bitcast(magic, floats))
    small = builder.sub(builder.bitcast(sum_, bits.type), magic)
    odd = builder.and_(builder.lshr(size, word(13)), word(1))
    rebased = builder.add(builder.sub(size, word((127 - 15) << 23)), word(0xFFF))
    normal = builder.lshr(builder.add(rebased, odd), word(13))
    is_small = builder.icmp_unsigned("<", size, word(113 << 23))
    is_special = builder.icmp_unsigned(">=", size, word((127 + 16) << 23))
    result = builder.select(is_small, small, normal)
    result = builder.select(is_special, special, result)
    return builder.or_(result, builder.lshr(sign, word(16)))
