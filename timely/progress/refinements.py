"""Refinements: how the times of a nested scope relate to those of the scope around it.

What is said outside holds of all that happens inside: a summary outside never advances a time further than the path inside.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, cast, get_args, get_origin

from timely.errors import TimestampError, brief
from timely.order import PartialOrder, Product
from timely.progress.domain import TimeDomain, time_domain
from timely.progress.timestamp import PathSummary, ProductSummary, Unit, UnitSummary

T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)
A = TypeVar("A", bound=PartialOrder)

_pair: Final = tuple.__new__  # half the cost of calling Product, for whatever enters a loop


class Refinement(Generic[TO, TI]):
    """The translation of times and summaries across the boundary of a scope: got from :func:`refinement`.

    ``identity``: the times are the same. The law: ``summarize(s).results_in(t)`` is never beyond
    ``to_outer(s.results_in(to_inner(t)))``.
    """

    __slots__ = ("identity", "inner", "outer")

    def __init__(self, outer: TimeDomain[TO], inner: TimeDomain[TI]) -> None:
        self.outer = outer
        self.inner = inner
        self.identity = outer.spec == inner.spec

    def to_inner(self, outer: TO) -> TI:
        """Return the time inside of what enters at ``outer``."""
        raise NotImplementedError

    def to_outer(self, inner: TI) -> TO:
        """Return the time outside of what leaves at ``inner``."""
        raise NotImplementedError

    def summarize(self, summary: PathSummary[TI]) -> PathSummary[TO] | None:
        """Return the summary outside of a path through the scope; None if nothing that enters gets through it."""
        raise NotImplementedError

    def fault(self) -> str | None:
        """Return what is wrong with the round trip of the least time, or None; the laws are for ``check_refinement``."""
        return None


class _SameTimes(Refinement[T, T]):
    __slots__ = ()

    def to_inner(self, outer: T) -> T:
        return outer

    def to_outer(self, inner: T) -> T:
        return inner

    def summarize(self, summary: PathSummary[T]) -> PathSummary[T] | None:
        return summary


class _AddCoordinate(Refinement[TO, Product[TO, A]]):
    """Adds a coordinate: at its minimum on entry, forgotten on leaving."""

    __slots__ = ("_start",)

    def __init__(self, outer: TimeDomain[TO], inner: TimeDomain[Product[TO, A]]) -> None:
        super().__init__(outer, inner)
        self._start: A = inner.minimum.inner

    def to_inner(self, outer: TO) -> Product[TO, A]:
        inner: Product[TO, A] = _pair(Product, (outer, self._start))
        return inner

    def to_outer(self, inner: Product[TO, A]) -> TO:
        return inner.outer

    def summarize(self, summary: PathSummary[Product[TO, A]]) -> PathSummary[TO] | None:
        if not isinstance(summary, ProductSummary):
            raise TimestampError(f"expected a summary of {self.inner.name}, a ProductSummary, not {brief(summary)}")
        outer: PathSummary[TO] = summary.outer
        return None if summary.inner.results_in(self._start) is None else outer


class _RefineUnit(Refinement[Unit, TI]):
    """The scope around has only one time."""

    __slots__ = ()

    def to_inner(self, outer: Unit) -> TI:
        return self.inner.minimum

    def to_outer(self, inner: TI) -> Unit:
        return Unit()

    def summarize(self, summary: PathSummary[TI]) -> PathSummary[Unit] | None:
        return None if summary.results_in(self.inner.minimum) is None else UnitSummary()


class _OwnRefinement(Refinement[TO, TI]):
    """The inner type has the methods itself."""

    __slots__ = ("_cls",)

    def __init__(self, outer: TimeDomain[TO], inner: TimeDomain[TI]) -> None:
        super().__init__(outer, inner)
        self._cls: Any = inner.spec

    def to_inner(self, outer: TO) -> TI:
        inner: TI = self._cls.to_inner(outer)
        return inner

    def to_outer(self, inner: TI) -> TO:
        outer: TO = self._cls.to_outer(inner)
        return outer

    def summarize(self, summary: PathSummary[TI]) -> PathSummary[TO] | None:
        outer: PathSummary[TO] | None = self._cls.summarize(summary)
        return outer

    def fault(self) -> str | None:
        least = self.outer.minimum
        inner = self.to_inner(least)
        fault = self.inner._fault(inner)
        if fault is not None:
            return f"to_inner({brief(least)}) returned {brief(inner)}, which is not a time of type {self.inner.name}: {fault}"
        outer = self.to_outer(inner)
        fault = self.outer._fault(outer)
        if fault is not None:
            return f"to_outer({brief(inner)}) returned {brief(outer)}, which is not a time of type {self.outer.name}: {fault}"
        if outer != least:
            return f"what enters at {brief(least)} and leaves at once is to come out at that, and comes out at {brief(outer)}"
        return None


def refinement(outer: type[TO], inner: type[TI]) -> Refinement[TO, TI]:
    """Return how the times ``inner`` of a nested scope refine the times ``outer`` around it.

    Equal types and ``Product[outer, X]`` do so by themselves, and everything refines ``Unit``. A class does by
    ``to_inner(outer)``, ``to_outer(inner)`` and ``summarize(inner_summary)``, called on the class. ``TimestampError`` for
    anything else.

    >>> from timely.progress.timestamp import Step
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
        f"that offers the class methods to_inner(outer), to_outer(inner) and summarize(inner_summary)"
    )
