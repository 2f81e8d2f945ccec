"""Times and path summaries.

A *time* is an immutable, hashable value whose ``<=`` and ``<`` are its partial order; a *path summary* says how a
time advances along a path through a graph, and None that nothing gets through. The invariants are the laws that
progress tracking rests on: summaries are monotone, ``identity`` changes nothing, and ``followed_by`` says exactly
what two summaries do in turn. What a caller gets to know of a type of times is the business of
:mod:`timely.progress.domain`, and how those of a nested scope relate to those around it of
:mod:`timely.progress.refinement`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from timely.errors import TimestampError
from timely.order import PartialOrder, Product

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)
S = TypeVar("S")

_pair = tuple.__new__  # half the price of calling Product, on a path that every turn of a loop takes


class PathSummary(Protocol[S]):
    """How a time advances along a path: hashable, with ``<=`` as its partial order (Naiad section 2.3).

    The laws: ``results_in`` is monotone; ``a <= b`` implies ``a.results_in(t) <= b.results_in(t)``, with None as the
    greatest of all; ``a.followed_by(b)`` is None where nothing gets through, and otherwise does what ``a`` and ``b`` do
    in turn.
    """

    def results_in(self, time: S, /) -> S | None:
        """Return the time at which ``time`` comes out at the end of the path, or None if it does not."""

    def followed_by(self, other: Self, /) -> Self | None:
        """Return the summary of this path and ``other`` after it, or None if nothing gets through both."""

    def __le__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...


def lacking(summary: object) -> str:
    """Return what an object does not offer of :class:`PathSummary`, in words; nothing where it has all of it.

    >>> lacking(3), lacking(None)
    ('results_in(), followed_by()', 'results_in(), followed_by(), __le__()')
    """
    order = "__le__"  # of which every object has one, that compares nothing
    missing = [name for name in ("results_in", "followed_by") if not hasattr(summary, name)]
    if getattr(type(summary), order) is getattr(object, order):
        missing.append(order)
    return ", ".join(f"{name}()" for name in missing)


class Timestamp(Protocol):
    """What a time type of one's own must offer. Instances are immutable and hashable, and so are their summaries.

    Optional, with correct defaults: ``sort_key()`` as in :func:`timely.order.sort_key`, and a class method
    ``is_total()`` that returns True when every two times of the type are comparable. Joins of incomparable times ask for
    ``lub(other)``, the earliest time at or after both.
    """

    def __le__(self, other: Self, /) -> bool: ...

    def __lt__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...

    @classmethod
    def minimum(cls) -> Self:
        """Return the time that is less than or equal to every time."""

    @classmethod
    def identity(cls) -> PathSummary[Self]:
        """Return the summary of a path that changes nothing."""


class Step:
    """The path summary of integers: advance by ``n``, as long as the result is not beyond ``limit``.

    ``n`` is never negative (a :class:`~timely.errors.TimestampError` otherwise): no message goes back in time.
    Without a ``limit`` everything gets through. All steps that let nothing through are equal, and above all others.

    >>> Step(3).results_in(5), Step(3, limit=9).results_in(6), Step(3, limit=9).results_in(7)
    (8, 9, None)
    >>> Step(5, limit=9).followed_by(Step(1, limit=12)), Step(1) <= Step(2), Step(1) <= Step(2, limit=4)
    (Step(6, limit=10), True, True)
    """

    __slots__ = ("_limit", "_n")

    def __init__(self, n: int, limit: int | None = None) -> None:
        if not isinstance(n, int) or n < 0:
            raise TimestampError(f"Step({n!r}) does not advance time: give a whole number of at least 0")
        if limit is not None and not isinstance(limit, int):
            raise TimestampError(f"Step's limit is the greatest time that still passes, or None, not {limit!r}")
        self._n = n
        self._limit = limit
        if limit is not None and limit < n:
            self._n, self._limit = 0, -1

    @property
    def n(self) -> int:
        """By how much a time advances."""
        return self._n

    @property
    def limit(self) -> int | None:
        """The greatest result that still passes; None: any."""
        return self._limit

    def results_in(self, time: int, /) -> int | None:
        """Return ``time + n``, or None where that is beyond the limit.

        >>> Step(1).results_in(41)
        42
        """
        limit = self._limit
        time += self._n
        return time if limit is None or time <= limit else None

    def followed_by(self, other: Step, /) -> Step | None:
        """Return the one step that does what this and ``other`` do in turn, or None if not even time 0 gets through.

        >>> Step(5).followed_by(Step(15)), Step(5, limit=9).followed_by(Step(8, limit=9))
        (Step(20), None)
        """
        n = self._n + other._n
        limit = other._limit
        if self._limit is not None and (limit is None or self._limit + other._n < limit):
            limit = self._limit + other._n
        return None if limit is not None and limit < n else Step(n, limit)

    def __le__(self, other: Step, /) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        if self._limit is None:
            return self._n <= other._n or other._limit == -1
        if other._limit is None:
            return False
        if other._limit == -1:
            return True
        return self._n <= other._n and other._limit - other._n <= self._limit - self._n

    def __lt__(self, other: Step, /) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        return self._n == other._n and self._limit == other._limit

    def __hash__(self) -> int:
        return hash((self._n, self._limit))

    def __repr__(self) -> str:
        return f"Step({self._n})" if self._limit is None else f"Step({self._n}, limit={self._limit})"


class Unit:
    """The type with one time: what a dataflow has that makes no difference between times.

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
        """Return the one time there is."""
        return Unit()

    @classmethod
    def identity(cls) -> UnitSummary:
        """Return the one summary there is."""
        return UnitSummary()

    @classmethod
    def is_total(cls) -> bool:
        """Return True: one time alone is totally ordered."""
        return True

    def sort_key(self) -> int:
        """Return the same key always."""
        return 0

    def __le__(self, other: Unit, /) -> bool:
        return True

    def __lt__(self, other: Unit, /) -> bool:
        return False

    def __reduce__(self) -> tuple[type[Unit], tuple[()]]:
        return Unit, ()

    def __repr__(self) -> str:
        return "Unit()"


class UnitSummary:
    """The path summary of :class:`Unit`: it changes nothing, for there is nothing to change.

    >>> UnitSummary().results_in(Unit()), UnitSummary().followed_by(UnitSummary()) == UnitSummary()
    (Unit(), True)
    """

    __slots__ = ()

    def results_in(self, time: Unit, /) -> Unit | None:
        """Return ``time``."""
        return time

    def followed_by(self, other: UnitSummary, /) -> UnitSummary | None:
        """Return ``other``."""
        return other

    def __le__(self, other: UnitSummary, /) -> bool:
        return True

    def __lt__(self, other: UnitSummary, /) -> bool:
        return False

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, UnitSummary)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "UnitSummary()"


class ProductSummary(Generic[TO, TI]):
    """The path summary of :class:`~timely.order.Product`: one summary for each coordinate, None where either is.

    >>> loop = ProductSummary(Step(0), Step(1, limit=9))
    >>> loop.results_in(Product(7, 3)), loop.results_in(Product(7, 9))
    ((7, 4), None)
    >>> loop.followed_by(loop)
    ProductSummary(Step(0), Step(2, limit=9))
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: PathSummary[TO], inner: PathSummary[TI]) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def outer(self) -> PathSummary[TO]:
        """The summary of the outer coordinate."""
        return self._outer

    @property
    def inner(self) -> PathSummary[TI]:
        """The summary of the inner coordinate."""
        return self._inner

    def results_in(self, time: Product[TO, TI], /) -> Product[TO, TI] | None:
        """Return ``time`` with both coordinates advanced, or None if either does not get through.

        >>> ProductSummary(Step(1), Step(2)).results_in(Product(0, 0))
        (1, 2)
        """
        outer = self._outer.results_in(time[0])
        if outer is None:
            return None
        inner = self._inner.results_in(time[1])
        return None if inner is None else _pair(Product, (outer, inner))

    def followed_by(self, other: ProductSummary[TO, TI], /) -> ProductSummary[TO, TI] | None:
        """Return the coordinates composed one by one, or None if nothing gets through one of them.

        >>> ProductSummary(Step(1), Step(2)).followed_by(ProductSummary(Step(0), Step(3)))
        ProductSummary(Step(1), Step(5))
        """
        outer = self._outer.followed_by(other._outer)
        inner = self._inner.followed_by(other._inner)
        return None if outer is None or inner is None else ProductSummary(outer, inner)

    def __le__(self, other: ProductSummary[TO, TI], /) -> bool:
        if not isinstance(other, ProductSummary):
            return NotImplemented
        return self._outer <= other._outer and self._inner <= other._inner

    def __lt__(self, other: ProductSummary[TO, TI], /) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, ProductSummary):
            return NotImplemented
        return bool(self._outer == other._outer and self._inner == other._inner)

    def __hash__(self) -> int:
        return hash((self._outer, self._inner))

    def __repr__(self) -> str:
        return f"ProductSummary({self._outer!r}, {self._inner!r})"
