"""Kernels of expressions over Arrow columns: arithmetic, comparisons, conditions. SQL views and Pregel on columns share them.

A kernel takes ``Semantics``, which say where systems differ, and arrays, or scalars beside arrays. It returns an array. It knows
no expressions: those who compile have a dictionary from theirs to kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, Literal, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.operators.keyed.column_numbers import has_nan


@attrs.frozen
class Semantics:
    """What a system does where arithmetic has no result."""

    overflow: Literal["raise", "wrap"]
    """``raise`` is ``ArrowInvalid``, also where the system itself computes with wider numbers."""
    divide_by_zero: Literal["infinity", "null", "raise"]
    nan: Literal["decline", "greatest"]
    """Whether NaN is the greatest number, or the kernel raises ``NoKernel`` for it; in the latter case there is no -0.0."""


DUCKDB: Final = Semantics("raise", "infinity", "decline")
SPARK_ANSI: Final = Semantics("raise", "raise", "greatest")
SPARK_LEGACY: Final = Semantics("wrap", "null", "greatest")

Kernel: TypeAlias = Callable[..., Any]
"""``kernel(semantics, *arrays)``."""


class NoKernel(Exception):
    """There is no kernel for an expression, or for the values that have come."""


# -- arithmetic --------------------------------------------------------------------------------------------------------


def arithmetic(function: str) -> Kernel:
    """Return the kernel of a function of Arrow that may overflow."""
    checked = f"{function}_checked"

    def compute(semantics: Semantics, *values: Any) -> Any:
        return _number(semantics, pc.call_function(checked if semantics.overflow == "raise" else function, list(values)))

    return compute


def _number(semantics: Semantics, values: Any) -> Any:
    if semantics.nan == "greatest" or not pa.types.is_floating(values.type):
        return values
    if has_nan(values):
        raise NoKernel
    return pc.add(values, 0.0)


def divide(semantics: Semantics, left: Any, right: Any) -> Any:
    """Return the quotients of doubles."""
    return _number(semantics, pc.divide(left, _divisor(semantics, left, right)))


def integral_divide(semantics: Semantics, left: Any, right: Any) -> Any:
    """Return the quotients of whole numbers, rounded towards zero."""
    divisor = _divisor(semantics, left, right)
    if semantics.overflow == "raise":
        return pc.divide_checked(left, divisor)
    opposite = pc.equal(divisor, pa.scalar(-1, divisor.type))  # Arrow divides the least number by -1 to 0 instead of itself
    return pc.if_else(pc.fill_null(opposite, False), pc.negate(left), pc.divide(left, divisor))


def remainder(semantics: Semantics, left: pa.Array, right: pa.Array) -> Any:
    """Return remainders with the sign of ``left``."""
    right = _divisor(semantics, left, right)
    there = pc.and_(left.is_valid(), right.is_valid())
    filled = right.fill_null(1).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # infinity has the remainder NaN
        remainders = np.fmod(left.fill_null(0).to_numpy(zero_copy_only=False), np.where(filled == -1, 1, filled))
    return pc.if_else(there, pa.array(remainders, left.type), pa.scalar(None, left.type))


def _divisor(semantics: Semantics, left: Any, right: Any) -> Any:
    """Return the divisor, with null for zero where that has no quotient."""
    if semantics.divide_by_zero == "infinity":
        return right
    zero = pc.equal(right, pa.scalar(0, right.type))
    if semantics.divide_by_zero == "raise" and pc.any(pc.and_(zero, pc.is_valid(left))).as_py():
        raise pa.ArrowInvalid("division by zero")
    return pc.if_else(zero, pa.scalar(None, right.type), right)


# -- comparisons -------------------------------------------------------------------------------------------------------


def equal(semantics: Semantics, left: Any, right: Any) -> Any:
    """Return which values are equal: NaN is, to itself."""
    same = pc.equal(left, right)
    return pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right))) if _may_be_nan(semantics, left) else same


def less(semantics: Semantics, left: Any, right: Any) -> Any:
    """Return which values are less."""
    smaller = pc.less(left, right)
    if not _may_be_nan(semantics, left):
        return smaller
    return pc.or_(smaller, pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _may_be_nan(semantics: Semantics, values: Any) -> bool:
    return semantics.nan == "greatest" and bool(pa.types.is_floating(values.type))


def greater(semantics: Semantics, left: Any, right: Any) -> Any:
    return less(semantics, right, left)


def opposite(kernel: Kernel) -> Kernel:
    """Return the kernel of what is not so: of ``less`` that of greater or equal."""
    return lambda semantics, *values: pc.invert(kernel(semantics, *values))


def null_safe_equal(semantics: Semantics, left: Any, right: Any) -> Any:
    """Return which values are equal, or both null."""
    return pc.or_(pc.fill_null(equal(semantics, left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))


def one_of(semantics: Semantics, value: Any, *others: Any) -> Any:
    """Return which values are equal to one of the others; null where they may be."""
    return reduce(pc.or_kleene, (equal(semantics, value, other) for other in others), pa.scalar(False))


def extreme(better: Kernel) -> Kernel:
    """Return the kernel of the value of each row that is ``better`` than the others, of those that are not null."""

    def choose(semantics: Semantics, best: Any, *values: Any) -> Any:
        for value in values:
            chosen = pc.or_(pc.fill_null(better(semantics, value, best), False), pc.is_null(best))
            best = pc.if_else(chosen, value, best)
        return best

    return choose


# -- conditions --------------------------------------------------------------------------------------------------------


def same_everywhere(function: Callable[..., Any]) -> Kernel:
    """Return the kernel of a function that is the same in all systems."""
    return lambda semantics, *values: function(*values)


def coalesce(semantics: Semantics, *values: Any) -> Any:
    """Return the first value of each row that is not null."""
    return reduce(lambda first, other: pc.if_else(pc.is_valid(first), first, other), values)


def case(semantics: Semantics, *parts: Any) -> Any:
    """Return, of ``condition, value, ..., otherwise``, the value of the first condition of each row that is true."""
    *pairs, chosen = parts
    for condition, value in zip(pairs[-2::-2], pairs[::-2], strict=True):
        chosen = pc.if_else(pc.fill_null(condition, False), value, chosen)
    return chosen
