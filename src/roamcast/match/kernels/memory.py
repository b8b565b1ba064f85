"""What numba has no word for: eight bytes from wherever they begin, memory asked for early, products of 128 bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic

from roamcast.compiled import kernel
from roamcast.match.kernels.scalars import Whole, u64

__all__ = ["eight_bytes", "expect", "folded_product", "same_bytes"]

Bytes = npt.NDArray[np.uint8]

_ALL: Final = ~u64(0)
cgutils: Any = numba_cgutils  # has no types


def _load_bytes(typing: Any, data: Any, at: Any) -> Any:
    """The eight bytes from `at`, which must all be there; the first is the lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = cgutils.gep(builder, array.data, arguments[1])
        word = ir.IntType(64)
        loaded = builder.load(builder.bitcast(place, word.as_pointer()), typ=word)
        loaded.align = 1
        return loaded

    return types.uint64(data, types.int64), generate


def _expect(typing: Any, array: Any, row: Any) -> Any:
    """Have the beginning of a row of an array that lies in one piece brought near: it will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, held.strides)[0]
        place = builder.add(builder.ptrtoint(held.data, ir.IntType(64)), builder.mul(arguments[1], stride))
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # For reading, to stay in the caches, data.
        builder.call(prefetch, [builder.inttoptr(place, pointer), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _fold_product(typing: Any, a: Any, b: Any) -> Any:
    """The halves of the product of two numbers of 64 bits, laid over each other: each bit of either counts in many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, long = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, long) for argument in arguments))
        return builder.xor(builder.trunc(product, word), builder.trunc(builder.lshr(product, long(64)), word))

    return types.uint64(types.uint64, types.uint64), generate


_load: Any = intrinsic(_load_bytes)
expect: Any = intrinsic(_expect)
folded_product: Any = intrinsic(_fold_product)


@kernel
def eight_bytes(data: Bytes, at: int, end: int) -> Whole:
    """The bytes from `at`, but not from `end` on, as a number, the first the lowest; eight at most."""
    count = min(max(end - at, 0), 8)
    if at + 8 <= len(data):
        # Two shifts: by 64 at once would be by 0.
        return _load(data, at) & (_ALL >> u64(4 * (8 - count)) >> u64(4 * (8 - count)))
    word = u64(0)
    for k in range(count):
        word |= u64(data[at + k]) << u64(8 * k)
    return word


@kernel
def same_bytes(data: Bytes, start: int, end: int, others: Bytes, other: int) -> bool:
    """Whether data[start:end] are the bytes of `others` from `other` on."""
    beyond = other + end - start
    differing = u64(eight_bytes(data, start, end)) ^ u64(eight_bytes(others, other, beyond))
    differing |= u64(eight_bytes(data, start + 8, end)) ^ u64(eight_bytes(others, other + 8, beyond))
    for far in range(16, end - start, 8):
        here, there = eight_bytes(data, start + far, end), eight_bytes(others, other + far, beyond)
        differing |= u64(here) ^ u64(there)
    return bool(differing == u64(0))
