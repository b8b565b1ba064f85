"""LLVM intrinsics missing from numba (unaligned 64-bit load, prefetch, 128-bit multiply), and fixed-width integers."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic

from roamcast.compiled import inline_kernel

__all__ = [
    "Scalar",
    "count_ones",
    "equal_bytes",
    "fold_multiply",
    "i64",
    "load_word",
    "prefetch",
    "u8",
    "u32",
    "u64",
]

Bytes = npt.NDArray[np.uint8]

# Inside kernels integers have a width. The type checker only knows Python's.
Scalar: TypeAlias = Any
u8: Final[Any] = np.uint8
u32: Final[Any] = np.uint32
i64: Final[Any] = np.int64
u64: Final[Any] = np.uint64

_ALL_BITS: Final = ~u64(0)
cgutils: Any = numba_cgutils  # untyped


def _load_unaligned(typing: Any, data: Any, at: Any) -> Any:
    """Load the eight bytes at data[at:at + 8], little-endian. All of them must exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = cgutils.gep(builder, array.data, arguments[1])
        word = ir.IntType(64)
        loaded = builder.load(builder.bitcast(address, word.as_pointer()), typ=word)
        loaded.align = 1
        return loaded

    return types.uint64(data, types.int64), generate


def _prefetch(typing: Any, array: Any, row: Any) -> Any:
    """Prefetch the beginning of a row of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, array_struct.strides)[0]
        address = builder.add(builder.ptrtoint(array_struct.data, ir.IntType(64)), builder.mul(arguments[1], stride))
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # For reading, with high temporal locality, from the data cache.
        builder.call(function, [builder.inttoptr(address, pointer), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _fold_multiply(typing: Any, a: Any, b: Any) -> Any:
    """Multiply two 64-bit numbers to 128 bits and xor the halves of the product."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, long = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, long) for argument in arguments))
        return builder.xor(builder.trunc(product, word), builder.trunc(builder.lshr(product, long(64)), word))

    return types.uint64(types.uint64, types.uint64), generate


_load: Any = intrinsic(_load_unaligned)
prefetch: Any = intrinsic(_prefetch)
fold_multiply: Any = intrinsic(_fold_multiply)


@inline_kernel
def load_word(data: Bytes, at: int, end: int) -> Scalar:
    """Load data[at:end], at most eight bytes, as a little-endian number."""
    count = min(max(end - at, 0), 8)
    if at + 8 <= len(data):
        # Two shifts, because a shift by 64 is a shift by 0.
        return _load(data, at) & (_ALL_BITS >> u64(4 * (8 - count)) >> u64(4 * (8 - count)))
    word = u64(0)
    for k in range(count):
        word |= u64(data[at + k]) << u64(8 * k)
    return word


@inline_kernel
def equal_bytes(data: Bytes, start: int, end: int, other: Bytes, other_start: int) -> bool:
    """Return whether data[start:end] equals as many bytes of `other` from `other_start` on."""
    other_end = other_start + end - start
    differing = u64(load_word(data, start, end)) ^ u64(load_word(other, other_start, other_end))
    differing |= u64(load_word(data, start + 8, end)) ^ u64(load_word(other, other_start + 8, other_end))
    for at in range(16, end - start, 8):
        differing |= u64(load_word(data, start + at, end)) ^ u64(load_word(other, other_start + at, other_end))
    return bool(differing == u64(0))


@inline_kernel
def count_ones(word: Scalar) -> Scalar:
    """Count the set bits of a 64-bit number."""
    w = u64(word)
    w = w - ((w >> u64(1)) & u64(0x5555555555555555))
    w = (w & u64(0x3333333333333333)) + ((w >> u64(2)) & u64(0x3333333333333333))
    w = (w + (w >> u64(4))) & u64(0x0F0F0F0F0F0F0F0F)
    return i64((w * u64(0x0101010101010101)) >> u64(56))
