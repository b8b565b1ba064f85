"""On which side of a line a point is, exactly for all finite coordinates, also denormal and huge ones.

Usually the rounding error of the determinant is too small to matter. Otherwise its terms are added up as a fixed-point
number that is wide enough for the product of any two floats.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel
from roamcast.match.kernels.intrinsics import Scalar, i64

__all__ = ["DIGITS", "LOST", "ROUNDING", "orientation"]

Integers = npt.NDArray[np.int64]

ROUNDING: Final = (3 + 16 * 2.0**-53) * 2.0**-53
"""Shewchuk's bound of the rounding error, relative to the sum of the absolute values of the two products."""
LOST: Final = 1e-300
"""More than what underflow adds to the error."""

_BITS: Final = 26  # of a digit
_MASK: Final = i64((1 << _BITS) - 1)
_LOWEST: Final = -1073  # the least exponent that frexp returns
_PLACES: Final = (1024 - _LOWEST) // _BITS + 3  # a mantissa spans three digits
DIGITS: Final = 2 * _PLACES
"""The number of digits that `orientation` needs."""


@inline_kernel
def _split(value: float) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return the place of the lowest digit of a number, and its three digits, which have its sign."""
    fraction, exponent = math.frexp(value)
    mantissa, sign = i64(abs(fraction) * 2.0**53), i64(-1 if value < 0.0 else 1)
    place, shift = divmod(i64(exponent - _LOWEST), _BITS)
    low = (mantissa << shift) & _MASK
    middle = (mantissa >> (_BITS - shift)) & _MASK
    return place, sign * low, sign * middle, sign * (mantissa >> (2 * _BITS - shift))


@inline_kernel
def _add_product(digits: Integers, a: float, b: float, sign: int) -> None:
    place_a, a0, a1, a2 = _split(a)
    place_b, b0, b1, b2 = _split(b)
    at = place_a + place_b
    digits[at] += sign * a0 * b0
    digits[at + 1] += sign * (a0 * b1 + a1 * b0)
    digits[at + 2] += sign * (a0 * b2 + a1 * b1 + a2 * b0)
    digits[at + 3] += sign * (a1 * b2 + a2 * b1)
    digits[at + 4] += sign * a2 * b2


@inline_kernel
def _take_sign(digits: Integers) -> Scalar:
    """Return the sign of the sum and clear it. The digits may have any sign and up to 62 bits."""
    carry, others = i64(0), i64(0)
    for k in range(len(digits)):
        total = digits[k] + carry
        digits[k] = 0
        carry = total >> _BITS
        others |= total & _MASK
    return i64(-1) if carry < 0 else i64((carry | others) != 0)


@inline_kernel
def orientation(digits: Integers, ax: float, ay: float, bx: float, by: float, px: float, py: float) -> Scalar:
    """Return 1 if p is to the left of the line from a to b, -1 if it is to the right, 0 if it is on the line.

    Coordinates must be finite. `digits` is working memory: DIGITS zeros, before and after.
    """
    left, right = (ax - px) * (by - py), (bx - px) * (ay - py)
    # False if a product overflows: infinity and NaN are not greater than infinity.
    if abs(left - right) > ROUNDING * (abs(left) + abs(right)) + LOST:
        return i64(1 if left > right else -1)
    _add_product(digits, ax, by, 1)
    _add_product(digits, bx, py, 1)
    _add_product(digits, px, ay, 1)
    _add_product(digits, ax, py, -1)
    _add_product(digits, bx, ay, -1)
    _add_product(digits, px, by, -1)
    return _take_sign(digits)
