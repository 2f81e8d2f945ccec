"""Rings: what the differences of a collection may be, other than whole numbers.

Operators add, negate and multiply differences with Python's operators and drop those that are false. A number does that as it
is, and other differences are wrapped so that they do.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from operator import index
from typing import Any, Final, get_origin

import attrs

from timely.dataflow import warn
from timely.differential.updates.updates import Diff
from timely.errors import DifferenceError, brief


@attrs.frozen
class Ring:
    """Differences of your own: functions of plain values, of which those that are ``None`` cannot be done.

    ``one`` is what ``insert`` adds. Without ``negate`` a collection can only grow. Without ``multiply`` it joins only with
    collections that count in whole numbers. ``is_positive`` is the order that ``distinct`` and ``threshold`` need.

    >>> from timely import differential as dd
    >>> shortest = dd.Ring(zero=float("inf"), add=min, multiply=lambda a, b: a + b)
    >>> shortest.wrap(3) + shortest.wrap(5) == shortest.wrap(3), shortest.wrap(3) * shortest.wrap(5) == shortest.wrap(8)
    (True, True)
    """

    zero: Diff
    add: Callable[[Diff, Diff], Diff]
    negate: Callable[[Diff], Diff] | None = None
    multiply: Callable[[Diff, Diff], Diff] | None = None
    is_zero: Callable[[Diff], bool] | None = None
    one: Diff = None
    is_positive: Callable[[Diff], bool] | None = None
    native: type | None = attrs.field(default=None, kw_only=True)

    def wrap(self, value: Diff) -> Diff:
        """Return ``value`` as operators add it."""
        if self.native is None:
            return Difference(value, self)
        try:
            return int(index(value)) if self.native is int else self.native(value)
        except (TypeError, ValueError):
            raise DifferenceError(f"differences of this collection are {self.native.__name__}, not {brief(value)}") from None

    def unwrap(self, difference: Diff) -> Diff:
        """Return the plain value of a difference."""
        return difference.value if type(difference) is Difference else difference

    def require(self, what: str, operator: str) -> None:
        """Raise ``DifferenceError`` unless the ring has ``what``, such as ``"negate"``."""
        if getattr(self, what) is None:
            raise DifferenceError(f"{operator} {_NEEDS[what]}, which the differences of this collection ({self!r}) do not have")


_NEEDS: Final = {
    "negate": "takes records away, so it needs differences with negate(a)",
    "multiply": "multiplies differences, so it needs multiply(a, b)",
    "one": "adds the difference `one`; call update(record, difference) instead",
    "is_positive": "asks which counts are positive, so it needs is_positive(a)",
}


class Difference:
    """A value of a ring of your own, with Python's operators."""

    __slots__ = ("ring", "value")

    def __init__(self, value: Diff, ring: Ring) -> None:
        self.value = value
        self.ring = ring

    def __add__(self, other: Diff) -> Difference:
        if type(other) is not Difference:
            return self if other == 0 else NotImplemented
        return Difference(self.ring.add(self.value, other.value), self.ring)

    __radd__ = __add__

    def __neg__(self) -> Difference:
        negate = self.ring.negate
        if negate is None:
            raise DifferenceError(f"a difference of {self.ring!r} cannot be negated")
        return Difference(negate(self.value), self.ring)

    def __sub__(self, other: Diff) -> Difference:
        return self.__add__(-other)

    def __rsub__(self, other: Diff) -> Difference:
        return (-self).__add__(other)

    def __mul__(self, other: Diff) -> Difference:
        if type(other) is Difference:
            multiply = self.ring.multiply
            if multiply is None:
                raise DifferenceError(f"differences of {self.ring!r} cannot be multiplied")
            return Difference(multiply(self.value, other.value), self.ring)
        if not isinstance(other, int):
            return NotImplemented
        return self._times(other) if other >= 0 else -self._times(-other)

    __rmul__ = __mul__

    def _times(self, count: int) -> Difference:
        """Return the sum of ``count`` of it, by doubling."""
        total, power = Difference(self.ring.zero, self.ring), self
        while count:
            if count & 1:
                total += power
            power += power
            count >>= 1
        return total

    def __bool__(self) -> bool:
        is_zero = self.ring.is_zero
        return not (is_zero(self.value) if is_zero is not None else self.value == self.ring.zero)

    def __gt__(self, other: int) -> bool:
        """Return whether it is positive; ``other`` is 0."""
        positive = self.ring.is_positive
        return positive is not None and positive(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Difference) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


class Vector(tuple[Any, ...]):
    """A tuple of numbers that is added coordinate by coordinate, where missing ones are 0.

    >>> Vector([1, 2, 3]) + Vector([1, 1, 1, 1]), 2 * Vector([1, -1]), bool(Vector([0, 0]))
    ((2, 3, 4, 1), (2, -2), False)
    """

    __slots__ = ()

    def __add__(self, other: Diff) -> Vector:
        if not isinstance(other, tuple):
            return self if other == 0 else NotImplemented
        return Vector(one + two for one, two in zip_longest(self, other, fillvalue=0))

    __radd__ = __add__

    def __neg__(self) -> Vector:
        return Vector(-one for one in self)

    def __sub__(self, other: Diff) -> Vector:
        return self.__add__(-other)

    def __rsub__(self, other: Diff) -> Vector:
        return (-self).__add__(other)

    def __mul__(self, factor: Diff) -> Vector:
        return Vector(one * factor for one in self) if isinstance(factor, int | float) else NotImplemented

    __rmul__ = __mul__

    def __bool__(self) -> bool:
        return any(self)


def _add(one: Diff, two: Diff) -> Diff:
    return one + two


def _negate(one: Diff) -> Diff:
    return -one


def _multiply(one: Diff, two: Diff) -> Diff:
    return one * two


def _is_positive(one: Diff) -> bool:
    return bool(one > 0)


INTEGERS: Final = Ring(0, _add, _negate, _multiply, one=1, is_positive=_is_positive, native=int)
FLOATS: Final = Ring(0.0, _add, _negate, _multiply, one=1.0, is_positive=_is_positive, native=float)
VECTORS: Final = Ring((), _add, _negate, native=Vector)


def ring_of(diff: Any) -> Ring:
    """Return the ring that ``diff=`` names: ``int``, ``float`` with a ``TimelyWarning``, ``tuple`` (of numbers), or a ``Ring``.

    >>> ring_of(int).one, ring_of(tuple).wrap((1, 2)) + ring_of(tuple).wrap((3, 4))
    (1, (4, 6))
    """
    if isinstance(diff, Ring):
        return diff
    if diff is int:
        return INTEGERS
    if diff is float:
        warn(
            "sums of floats do not cancel exactly, so a record may be left with a tiny count: count in whole units, or give a"
            " differential.Ring of exact numbers as diff="
        )
        return FLOATS
    if diff is tuple or get_origin(diff) is tuple:
        return VECTORS
    raise DifferenceError(f"diff is int, float, tuple (numbers that add up one by one) or a differential.Ring, not {brief(diff)}")


def product_ring(left: Ring, right: Ring, operator: str) -> Ring:
    """Return the ring of the products of two collections' differences."""
    if left is right:
        left.require("multiply", operator)
        return left
    if left is INTEGERS or (left is FLOATS and right is VECTORS):
        return right
    if right is INTEGERS or (right is FLOATS and left is VECTORS):
        return left
    raise DifferenceError(f"{operator} multiplies differences, and those of its inputs do not go together: {left!r}, {right!r}")
