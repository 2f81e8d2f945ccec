"""Times and path summaries.

A *time* is an immutable, hashable value with ``<=`` and ``<`` as its partial order. A *path summary* says how a time advances
along a path; None means that nothing gets through. Summaries are monotone, ``identity`` changes nothing, and ``followed_by`` is
composition.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import attrs

from timely.errors import TimestampError
from timely.order import PartialOrder, Product

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)
S = TypeVar("S")

_pair = tuple.__new__  # half the cost of calling Product, which every iteration of a loop pays


class PathSummary(Protocol[S]):
    """How a time advances along a path: hashable, with ``<=`` as its partial order (Naiad section 2.3).

    The laws: ``results_in`` is monotone. ``a <= b`` implies ``a.results_in(t) <= b.results_in(t)``, where None is greatest.
    ``a.followed_by(b)`` does what ``a`` and ``b`` do in turn; it is None if nothing gets through.
    """

    def results_in(self, time: S, /) -> S | None:
        """Return the time at the end of the path, or None if ``time`` does not get through."""

    def followed_by(self, other: Self, /) -> Self | None:
        """Return the summary of this path and then ``other``, or None if nothing gets through both."""

    def __le__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...


def lacking(summary: object) -> str:
    """Return what an object lacks of :class:`PathSummary`, as text; empty if nothing."""
    order = "__le__"  # every object has one
    missing = [name for name in ("results_in", "followed_by") if not hasattr(summary, name)]
    if getattr(type(summary), order) is getattr(object, order):
        missing.append(order)
    return ", ".join(f"{name}()" for name in missing)


class Timestamp(Protocol):
    """What a custom time type must have. Instances and their summaries are immutable and hashable.

    Optional, with correct defaults: ``sort_key()`` (:func:`timely.order.sort_key`), and a class method ``is_total()``, True if
    every two times are comparable. Joins of incomparable times need ``lub(other)``, the earliest time at or after both.
    """

    def __le__(self, other: Self, /) -> bool: ...

    def __lt__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...

    @classmethod
    def minimum(cls) -> Self:
        """Return the least time."""

    @classmethod
    def identity(cls) -> PathSummary[Self]:
        """Return the summary that changes nothing."""


@attrs.define(eq=False, repr=False, getstate_setstate=False)  # a class derived from it may equal it, and has state of its own
class Step:
    """The path summary of integers: advance by ``n``, if the result is not beyond ``limit``.

    ``TimestampError`` for ``n`` below 0. All steps that let nothing through are equal, and above all others.

    >>> Step(3).results_in(5), Step(3, limit=9).results_in(6), Step(3, limit=9).results_in(7)
    (8, 9, None)
    >>> Step(5, limit=9).followed_by(Step(1, limit=12)), Step(1) <= Step(2), Step(1) <= Step(2, limit=4)
    (Step(6, limit=10), True, True)
    """

    n: int
    limit: int | None = None

    def __attrs_post_init__(self) -> None:
        n, limit = self.n, self.limit
        if not isinstance(n, int) or n < 0:
            raise TimestampError(f"Step({n!r}) does not advance time: give a whole number of at least 0")
        if limit is not None and not isinstance(limit, int):
            raise TimestampError(f"Step's limit is the greatest time that still passes, or None, not {limit!r}")
        if limit is not None and limit < n:
            self.n, self.limit = 0, -1

    def results_in(self, time: int, /) -> int | None:
        """Return ``time + n``, or None if that is beyond the limit."""
        limit = self.limit
        time += self.n
        return time if limit is None or time <= limit else None

    def followed_by(self, other: Step, /) -> Step | None:
        """Return the step that does both in turn, or None if not even time 0 gets through."""
        n = self.n + other.n
        limit = other.limit
        if self.limit is not None and (limit is None or self.limit + other.n < limit):
            limit = self.limit + other.n
        return None if limit is not None and limit < n else Step(n, limit)

    def __le__(self, other: Step, /) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        if self.limit is None:
            return self.n <= other.n or other.limit == -1
        if other.limit is None:
            return False
        if other.limit == -1:
            return True
        return self.n <= other.n and other.limit - other.n <= self.limit - self.n

    def __lt__(self, other: Step, /) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        return self.n == other.n and self.limit == other.limit

    def __hash__(self) -> int:
        return hash((self.n, self.limit))

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        return f"{type(self).__name__}({self.n}{limit})"


class Unit:
    """The type with one time, for a dataflow without times.

    >>> Unit() is Unit(), Unit() <= Unit(), Unit() < Unit(), Unit()
    (True, True, False, Unit())
    """

    __slots__ = ()

    _only: ClassVar[Any] = None

    def __new__(cls) -> Self:
        if cls._only is None:
            cls._only = super().__new__(cls)
        only: Self = cls._only
        return only

    @classmethod
    def minimum(cls) -> Unit:
        return Unit()

    @classmethod
    def identity(cls) -> UnitSummary:
        return UnitSummary()

    @classmethod
    def is_total(cls) -> bool:
        return True

    def sort_key(self) -> int:
        return 0

    def __le__(self, other: Unit, /) -> bool:
        return True

    def __lt__(self, other: Unit, /) -> bool:
        return False

    def __reduce__(self) -> tuple[type[Unit], tuple[()]]:
        return Unit, ()

    def __repr__(self) -> str:
        return "Unit()"


class Unchanged:
    """The path summary that changes nothing, of times that nothing advances, such as dates.

    >>> Unchanged().results_in("2026-11-24"), Unchanged().followed_by(Unchanged())
    ('2026-11-24', Unchanged())
    """

    __slots__ = ()

    def results_in(self, time: Any, /) -> Any:
        """Return ``time``."""
        return time

    def followed_by(self, other: Self, /) -> Self | None:
        """Return ``other``."""
        return other

    def __le__(self, other: Unchanged, /) -> bool:
        return True

    def __lt__(self, other: Unchanged, /) -> bool:
        return False

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Unchanged)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class UnitSummary(Unchanged):
    """The path summary of :class:`Unit`."""

    __slots__ = ()


@attrs.define(eq=False, repr=False, getstate_setstate=False)
class ProductSummary(Generic[TO, TI]):
    """The path summary of :class:`~timely.order.Product`: one summary for each coordinate.

    >>> loop = ProductSummary(Step(0), Step(1, limit=9))
    >>> loop.results_in(Product(7, 3)), loop.results_in(Product(7, 9))
    ((7, 4), None)
    >>> loop.followed_by(loop)
    ProductSummary(Step(0), Step(2, limit=9))
    """

    outer: PathSummary[TO]
    inner: PathSummary[TI]

    def results_in(self, time: Product[TO, TI], /) -> Product[TO, TI] | None:
        """Return ``time`` with both coordinates advanced, or None if either does not get through."""
        outer = self.outer.results_in(time[0])
        if outer is None:
            return None
        inner = self.inner.results_in(time[1])
        return None if inner is None else _pair(Product, (outer, inner))

    def followed_by(self, other: ProductSummary[TO, TI], /) -> ProductSummary[TO, TI] | None:
        """Return both in turn, or None if nothing gets through one of the coordinates."""
        outer = self.outer.followed_by(other.outer)
        inner = self.inner.followed_by(other.inner)
        return None if outer is None or inner is None else ProductSummary(outer, inner)

    def __le__(self, other: ProductSummary[TO, TI], /) -> bool:
        if not isinstance(other, ProductSummary):
            return NotImplemented
        return self.outer <= other.outer and self.inner <= other.inner

    def __lt__(self, other: ProductSummary[TO, TI], /) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, ProductSummary):
            return NotImplemented
        return bool(self.outer == other.outer and self.inner == other.inner)

    def __hash__(self) -> int:
        return hash((self.outer, self.inner))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.outer!r}, {self.inner!r})"
