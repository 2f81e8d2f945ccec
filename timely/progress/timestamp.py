"""Times, path summaries, and how the times of a nested scope relate to those around it.

A *time* is an immutable, hashable value whose ``<=`` and ``<`` are its partial order; a *path summary* says how a
time advances along a path through a graph, and None that nothing gets through. The invariants are the laws that
progress tracking rests on: summaries are monotone, ``identity`` changes nothing, and ``followed_by`` says exactly
what two summaries do in turn. A caller describes times by a *specification* (``int``, ``Unit``, ``Product[int,
int]``, a class of one's own) and gets from :func:`time_domain` everything the layers above need of it, and from
:func:`refinement` the translation of times between a scope and one nested in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast, get_args, get_origin

from timely.errors import TimestampError
from timely.order import PartialOrder, Product, linear_extension, sort_key

T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)
A = TypeVar("A", bound=PartialOrder)
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

    def __reduce__(self) -> tuple[type[Step], tuple[int, int | None]]:
        return Step, (self._n, self._limit)

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

    def __reduce__(self) -> tuple[type[ProductSummary[TO, TI]], tuple[PathSummary[TO], PathSummary[TI]]]:
        return ProductSummary, (self._outer, self._inner)

    def __repr__(self) -> str:
        return f"ProductSummary({self._outer!r}, {self._inner!r})"


class TimeDomain(Generic[T]):
    """What is known of a type of times: got from :func:`time_domain`, shared, and never changed.

    ``spec`` is the specification it was made from and ``name`` that in words; ``minimum`` is the least time and
    ``identity`` the summary that changes nothing; ``total`` says whether every two times are comparable, and ``single``
    whether there is only one.
    """

    __slots__ = ("identity", "minimum", "name", "single", "spec", "total")

    def __init__(
        self, spec: object, name: str, minimum: T, identity: PathSummary[T], total: bool, single: bool
    ) -> None:
        self.spec = spec
        self.name = name
        self.minimum = minimum
        self.identity = identity
        self.total = total
        self.single = single

    def key(self, time: T) -> Any:
        """Return a key for sorting that extends the partial order, or None where the type has none.

        >>> time_domain(Product[int, int]).key(Product(3, 1))
        (3, 1)
        """
        return sort_key(time)

    def sorted(self, times: Iterable[T]) -> list[T]:
        """Return ``times`` in an order in which none stands after one that it is less than.

        >>> time_domain(int).sorted([3, 1, 2])
        [1, 2, 3]
        """
        return linear_extension(times)

    def check(self, time: object) -> None:
        """Raise a :class:`~timely.errors.TimestampError` unless ``time`` is a time of this type.

        >>> time_domain(Product[int, int]).check(Product(0, -1))
        Traceback (most recent call last):
        timely.errors.TimestampError: (0, -1) is not a time of type Product[int, int]: -1 is before the minimum, 0
        """
        fault = self._fault(time)
        if fault is not None:
            raise TimestampError(f"{time!r} is not a time of type {self.name}: {fault}")

    def _fault(self, time: object) -> str | None:
        """Return what makes ``time`` no time of this type, or None where it is one."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return time_domain, (self.spec,)

    def __repr__(self) -> str:
        return f"time_domain({self.name})"


class _IntDomain(TimeDomain[int]):
    """The natural numbers."""

    __slots__ = ()

    def sorted(self, times: Iterable[int]) -> list[int]:
        return sorted(times)

    def _fault(self, time: object) -> str | None:
        if isinstance(time, bool) or not isinstance(time, int):
            return f"{time!r} is of type {type(time).__name__}, not int"
        return f"{time!r} is before the minimum, 0" if time < 0 else None


class _ClassDomain(TimeDomain[T]):
    """The instances of one class, at or beyond its minimum."""

    __slots__ = ("_cls",)

    def __init__(self, spec: object, cls: type[Any], minimum: T, identity: PathSummary[T], total: bool) -> None:
        super().__init__(spec, cls.__name__, minimum, identity, total, cls is Unit)
        self._cls = cls

    def _fault(self, time: object) -> str | None:
        if not isinstance(time, self._cls):
            return f"{time!r} is of type {type(time).__name__}, not {self.name}"
        return None if self.minimum <= cast("T", time) else f"it is not beyond the minimum, {self.minimum!r}"


class _ProductDomain(TimeDomain[Product[TO, TI]]):
    """Pairs of the times of two domains."""

    __slots__ = ("_inner", "_outer", "_whole")

    def __init__(self, spec: object, outer: TimeDomain[TO], inner: TimeDomain[TI]) -> None:
        super().__init__(
            spec,
            f"Product[{outer.name}, {inner.name}]",
            Product(outer.minimum, inner.minimum),
            ProductSummary(outer.identity, inner.identity),
            (outer.single and inner.total) or (inner.single and outer.total),
            outer.single and inner.single,
        )
        self._outer = outer
        self._inner = inner
        self._whole = outer.spec is int and inner.spec is int

    def check(self, time: object) -> None:
        """Raise unless ``time`` is a time of this type; pairs of numbers, which most are, take one look."""
        if self._whole and type(time) is Product:
            outer, inner = time
            if type(outer) is int and type(inner) is int and outer >= 0 and inner >= 0:
                return
        super().check(time)

    def _fault(self, time: object) -> str | None:
        if not isinstance(time, Product):
            return f"{time!r} is of type {type(time).__name__}, not Product"
        return self._outer._fault(time.outer) or self._inner._fault(time.inner)


_DOMAINS: dict[object, TimeDomain[Any]] = {}


def time_domain(spec: type[T]) -> TimeDomain[T]:
    """Return what is known of the times that ``spec`` names; the same object for the same specification.

    A specification is ``int`` (from 0 on), ``Unit``, ``Product[A, B]`` of two specifications, or a class of one's own
    as :class:`Timestamp` describes it. Anything else is a :class:`~timely.errors.TimestampError` that says what is
    missing.

    >>> domain = time_domain(Product[int, Unit])
    >>> domain.name, domain.minimum, domain.identity, domain.total
    ('Product[int, Unit]', (0, Unit()), ProductSummary(Step(0), UnitSummary()), True)
    """
    try:
        known = _DOMAINS.get(spec)
    except TypeError:
        raise TimestampError(f"{spec!r} is not a type of times: give int, Unit, Product[A, B] or a class") from None
    if known is None:
        known = _DOMAINS[spec] = _resolve(spec)
    return known


def _resolve(spec: Any) -> TimeDomain[Any]:
    if spec is int:
        return _IntDomain(int, "int", 0, Step(0), True, False)
    origin, parts = get_origin(spec), get_args(spec)
    if origin is Product:
        return _ProductDomain(spec, time_domain(parts[0]), time_domain(parts[1]))
    if spec is Product:
        raise TimestampError("Product alone is not a type of times: say of what, as in Product[int, int]")
    cls = spec if origin is None else origin
    if not isinstance(cls, type):
        raise TimestampError(f"{spec!r} is not a type of times: give int, Unit, Product[A, B] or a class")
    missing = _missing(cls)
    if missing:
        raise TimestampError(f"{cls.__name__} cannot be a type of times: it lacks {', '.join(missing)}")
    minimum = spec.minimum()
    if not isinstance(minimum, cls):
        raise TimestampError(f"{cls.__name__}.minimum() returned {minimum!r}, which is no {cls.__name__}")
    is_total = getattr(spec, "is_total", None)
    return _ClassDomain(spec, cls, minimum, spec.identity(), is_total is not None and bool(is_total()))


def _missing(cls: Any) -> list[str]:
    """Return what ``cls`` does not offer of :class:`Timestamp`."""
    missing = [f"{name}()" for name in ("__le__", "__lt__") if getattr(cls, name) is getattr(object, name)]
    for name in ("minimum", "identity"):
        if not callable(getattr(cls, name, None)):
            missing.append(f"the class method {name}()")
    if cls.__hash__ is None:
        missing.append("__hash__()")
    return missing


class Refinement(Generic[TO, TI]):
    """How the times of a nested scope refine those around it: got from :func:`refinement`.

    ``identity`` says that nothing is to be done. The law: ``summarize(s).results_in(t)`` is never beyond
    ``to_outer(s.results_in(to_inner(t)))``, so that what is said outside holds of all that happens inside.
    """

    __slots__ = ("identity", "inner", "outer")

    def __init__(self, outer: TimeDomain[TO], inner: TimeDomain[TI]) -> None:
        self.outer = outer
        self.inner = inner
        self.identity = outer.spec == inner.spec

    def to_inner(self, outer: TO) -> TI:
        """Return the time at which what comes from outside at ``outer`` arrives inside."""
        raise NotImplementedError

    def to_outer(self, inner: TI) -> TO:
        """Return the time at which what leaves the scope at ``inner`` arrives outside."""
        raise NotImplementedError

    def summarize(self, summary: PathSummary[TI]) -> PathSummary[TO] | None:
        """Return what a path through the scope looks like from outside; None if nothing that enters gets through it."""
        raise NotImplementedError


class _SameTimes(Refinement[T, T]):
    """The nested scope has the times of the one around it."""

    __slots__ = ()

    def to_inner(self, outer: T) -> T:
        return outer

    def to_outer(self, inner: T) -> T:
        return inner

    def summarize(self, summary: PathSummary[T]) -> PathSummary[T] | None:
        return summary


class _AddCoordinate(Refinement[TO, Product[TO, A]]):
    """The nested scope adds a coordinate, which is at its minimum for what enters and forgotten for what leaves."""

    __slots__ = ("_start",)

    def __init__(self, outer: TimeDomain[TO], inner: TimeDomain[Product[TO, A]]) -> None:
        super().__init__(outer, inner)
        self._start: A = inner.minimum.inner

    def to_inner(self, outer: TO) -> Product[TO, A]:
        return Product(outer, self._start)

    def to_outer(self, inner: Product[TO, A]) -> TO:
        return inner.outer

    def summarize(self, summary: PathSummary[Product[TO, A]]) -> PathSummary[TO] | None:
        if not isinstance(summary, ProductSummary):
            raise TimestampError(f"expected a summary of {self.inner.name}, a ProductSummary, not {summary!r}")
        outer: PathSummary[TO] = summary.outer
        return None if summary.inner.results_in(self._start) is None else outer


class _RefineUnit(Refinement[Unit, TI]):
    """Around the nested scope there is only one time."""

    __slots__ = ()

    def to_inner(self, outer: Unit) -> TI:
        return self.inner.minimum

    def to_outer(self, inner: TI) -> Unit:
        return Unit()

    def summarize(self, summary: PathSummary[TI]) -> PathSummary[Unit] | None:
        return None if summary.results_in(self.inner.minimum) is None else UnitSummary()


class _OwnRefinement(Refinement[TO, TI]):
    """The inner type says itself how it refines the outer one."""

    __slots__ = ("_cls",)

    def __init__(self, outer: TimeDomain[TO], inner: TimeDomain[TI]) -> None:
        super().__init__(outer, inner)
        self._cls: Any = inner.spec

    def to_inner(self, outer: TO) -> TI:
        inner: TI = self._cls.to_inner(outer)
        return inner

    def to_outer(self, inner: TI) -> TO:
        outer: TO = cast("Any", inner).to_outer()
        return outer

    def summarize(self, summary: PathSummary[TI]) -> PathSummary[TO] | None:
        outer: PathSummary[TO] | None = self._cls.summarize(summary)
        return outer


def refinement(outer: type[TO], inner: type[TI]) -> Refinement[TO, TI]:
    """Return how the times ``inner`` of a nested scope refine the times ``outer`` around it.

    Equal times do so by themselves; ``Product[outer, X]`` adds a coordinate; a class of one's own does by its
    ``to_inner(cls, outer)``, ``to_outer(self)`` and ``summarize(cls, summary)`` (the first and the last are class
    methods); and everything refines ``Unit``. Anything else is a :class:`~timely.errors.TimestampError`.

    >>> into_loop = refinement(int, Product[int, int])
    >>> into_loop.to_inner(7), into_loop.to_outer(Product(7, 3)), into_loop.summarize(ProductSummary(Step(2), Step(9)))
    ((7, 0), 7, Step(2))
    """
    around: TimeDomain[Any] = time_domain(outer)
    within: TimeDomain[Any] = time_domain(inner)
    if outer == inner:
        return cast("Refinement[TO, TI]", _SameTimes(around, within))
    if get_origin(inner) is Product and get_args(inner)[0] == outer:
        return cast("Refinement[TO, TI]", _AddCoordinate(around, within))
    if outer is Unit:
        return cast("Refinement[TO, TI]", _RefineUnit(around, within))
    if all(callable(getattr(inner, name, None)) for name in ("to_inner", "to_outer", "summarize")):
        return _OwnRefinement(around, within)
    raise TimestampError(
        f"{within.name} does not refine {around.name}: use {around.name} itself, Product[{around.name}, X], or a class "
        f"that offers the class methods to_inner(outer) and summarize(summary) and the method to_outer()"
    )
