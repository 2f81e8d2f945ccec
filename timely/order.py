"""Partial orders, and the product of two of them.

A time of a dataflow need not be a number: inside a loop it is a pair, an epoch and a round, and neither of (0, 5) and
(3, 0) comes before the other. This module holds what every layer above needs of such an order: the protocol that a
type meets when its ``<=`` is a partial order, the product of two orders, and linear extensions for showing things in
a stable sequence. The invariant: ``<=`` on these types is the *partial* order, never anything lexicographic, and
``a < b`` means ``a <= b and a != b``. A caller may therefore compare with the operators alone, but must not hand times
to ``sorted`` or ``min``, which assume a total order; :func:`linear_extension` is for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar


class PartialOrder(Protocol):
    """What a hashable type offers whose ``<=`` is a partial order: reflexive, transitive, antisymmetric with ``==``."""

    def __le__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...


T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


class Product(NamedTuple, Generic[TO, TI]):
    """A pair ordered coordinate by coordinate: ``a <= b`` when both coordinates agree on it.

    The timestamp of a loop (Naiad section 2.1): ``outer`` says which times of the surrounding scope, ``inner`` which
    round. Equality and hash are those of the pair. As a type of times it is written ``Product[int, int]``, nested at
    will. What it is compared with has to be a pair of such times: whoever takes in a time checks that, not every comparison.

    >>> Product(0, 0) <= Product(1, 1), Product(0, 5) <= Product(3, 0), Product(3, 0) <= Product(0, 5)
    (True, False, False)
    >>> Product(1, 2).inner, str(Product(Product(0, 1), 2))
    (2, '((0, 1), 2)')
    """

    outer: TO
    inner: TI

    def __le__(self, other: tuple[Any, ...], /) -> bool:
        below: bool = self[0] <= other[0] and self[1] <= other[1]
        return below

    def __lt__(self, other: tuple[Any, ...], /) -> bool:
        below: bool = self[0] <= other[0] and self[1] <= other[1] and self != other
        return below

    def __ge__(self, other: tuple[Any, ...], /) -> bool:
        above: bool = other[0] <= self[0] and other[1] <= self[1]
        return above

    def __gt__(self, other: tuple[Any, ...], /) -> bool:
        above: bool = other[0] <= self[0] and other[1] <= self[1] and self != other
        return above

    def __repr__(self) -> str:
        return f"({self[0]!r}, {self[1]!r})"


_TOTAL: Final = frozenset({float, str, bytes, tuple, Decimal, date, datetime})
"""Types of Python that are times as they stand, and their own sort keys; tuples are ordered lexicographically."""

_PRODUCT: Final = Product  # compiled, a name of the module is looked up at each use, and a constant is not


def less_equal(one: Any, other: Any) -> bool:
    """Return ``one <= other``, for times of one type; for pairs, without the detour that Python takes to the methods of a class.

    >>> less_equal(Product(0, 5), Product(3, 5)), less_equal(Product(0, 5), Product(3, 0)), less_equal(2, 2)
    (True, False, True)
    """
    if type(one) is _PRODUCT:
        return bool(one[0] <= other[0] and one[1] <= other[1])
    return bool(one <= other)


def reaches(times: list[Any], time: Any) -> bool:
    """Return whether any of ``times`` is at or before ``time``: as a frontier, whether ``time`` may still come.

    >>> reaches([Product(0, 5), Product(3, 0)], Product(3, 4)), reaches([Product(0, 5), Product(3, 0)], Product(2, 4))
    (True, False)
    """
    if type(time) is _PRODUCT:
        outer, inner = time
        for pair in times:
            if pair[0] <= outer and pair[1] <= inner:
                return True
        return False
    for other in times:
        if other <= time:
            return True
    return False


def beyond(times: list[Any], time: Any) -> list[Any]:
    """Return those of ``times`` that are at or after ``time``.

    >>> beyond([Product(0, 5), Product(3, 0), Product(4, 5)], Product(0, 4))
    [(0, 5), (4, 5)]
    """
    if type(time) is _PRODUCT:
        outer, inner = time
        return [pair for pair in times if outer <= pair[0] and inner <= pair[1]]
    return [other for other in times if time <= other]


def sort_key(time: Any) -> Any:
    """Return a key that extends the order of ``time``'s type to a total one, or None where the type offers none.

    A number, a text and a date are their own keys, a product's is lexicographic, and a type of one's own may offer a method
    ``sort_key()`` with ``a < b`` implying ``a.sort_key() < b.sort_key()``, and keys of which any two are comparable. A subclass
    of either that compares in its own way is such a type: sets of bits are numbers, and ordered otherwise.

    >>> sort_key(Product(Product(0, 1), 2)), sort_key("b"), sort_key({"no order is known"})
    (((0, 1), 2), 'b', None)
    """
    cls: Any = type(time)
    if cls is int:
        return time
    if cls is not _PRODUCT:
        own = getattr(time, "sort_key", None)
        if own is not None:
            return own()
        if isinstance(time, int) and cls.__le__ is int.__le__ and cls.__lt__ is int.__lt__:
            return time
    if cls is _PRODUCT or (isinstance(time, Product) and cls.__le__ is Product.__le__):
        outer, inner = sort_key(time[0]), sort_key(time[1])
        return None if outer is None or inner is None else (outer, inner)
    return time if cls in _TOTAL else None


def linear_extension(times: Iterable[T]) -> list[T]:
    """Return the times in a sequence in which none stands after one that it is less than.

    By :func:`sort_key` where there is one, in O(n log n); otherwise by how many of the others lie below each, in O(n²)
    comparisons, with ties left in the order given. Only ``<=`` is asked of the type then.

    >>> linear_extension([Product(3, 0), Product(0, 5), Product(0, 0)])
    [(0, 0), (0, 5), (3, 0)]
    >>> a, b = frozenset("a"), frozenset("b")  # sets are ordered by inclusion
    >>> linear_extension([a | b, b, a]) == [b, a, a | b]
    True
    """
    items = list(times)
    if len(items) < 2 or (len(items) == 2 and items[0] <= items[1]):
        return items
    keys = [sort_key(time) for time in items]
    if None in keys:
        keys = [sum(below <= time for below in items) for time in items]
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]
