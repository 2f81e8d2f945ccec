"""Refinements: how the times of a nested scope relate to those of the scope around it.

What is said outside holds of all that happens inside: a summary outside never advances a time further than the path inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from timely.errors import TimestampError, brief
from timely.order import PartialOrder, Product
from timely.progress.domain import TimeDomain, time_domain
from timely.progress.timestamp import PathSummary, ProductSummary, Unit, UnitSummary

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)

_pair: Final = tuple.__new__  # half the cost of calling Product, for whatever enters a loop


class Refinement(Generic[TO, TI]):
    """The translation of times and summaries across the boundary of a scope: got from :func:`refinement`.

    ``to_inner(outer)`` is the time inside of what enters, ``to_outer(inner)`` the time outside of what leaves.
    ``summarize(summary)`` is the summary outside of a path through the scope; None if nothing that enters gets through it.
    ``identity``: the times are the same. The law: ``summarize(s).results_in(t)`` is never beyond
    ``to_outer(s.results_in(to_inner(t)))``.
    """

    __slots__ = ("identity", "inner", "outer", "summarize", "to_inner", "to_outer")

    def __init__(
        self,
        outer: TimeDomain[TO],
        inner: TimeDomain[TI],
        to_inner: Callable[[TO], TI],
        to_outer: Callable[[TI], TO],
        summarize: Callable[[PathSummary[TI]], PathSummary[TO] | None],
    ) -> None:
        self.outer = outer
        self.inner = inner
        self.identity = outer.spec == inner.spec
        self.to_inner = to_inner
        self.to_outer = to_outer
        self.summarize = summarize

    def fault(self) -> str | None:
        """Return what is wrong with the round trip of the least time, or None; the laws are for ``check_refinement``."""
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
        return Refinement(around, within, _same, _same, _same)
    if get_origin(inner) is Product and get_args(inner)[0] == outer:
        return _add_coordinate(around, within)
    if outer is Unit:
        return _refine_unit(around, within)
    own: Any = inner
    if all(callable(getattr(own, name, None)) for name in ("to_inner", "to_outer", "summarize")):
        return Refinement(around, within, own.to_inner, own.to_outer, own.summarize)
    raise TimestampError(
        f"{within.name} does not refine {around.name}: use {around.name} itself, Product[{around.name}, X], or a class "
        f"that offers the class methods to_inner(outer), to_outer(inner) and summarize(inner_summary)"
    )


def _same(value: Any) -> Any:
    return value


def _add_coordinate(outer: TimeDomain[Any], inner: TimeDomain[Any]) -> Refinement[Any, Any]:
    """Add a coordinate: at its minimum on entry, forgotten on leaving."""
    start = inner.minimum.inner

    def summarize(summary: PathSummary[Any]) -> PathSummary[Any] | None:
        if not isinstance(summary, ProductSummary):
            raise TimestampError(f"expected a summary of {inner.name}, a ProductSummary, not {brief(summary)}")
        through: PathSummary[Any] = summary.outer
        return None if summary.inner.results_in(start) is None else through

    return Refinement(outer, inner, lambda time: _pair(Product, (time, start)), lambda time: time.outer, summarize)


def _refine_unit(outer: TimeDomain[Any], inner: TimeDomain[Any]) -> Refinement[Any, Any]:
    least = inner.minimum

    def summarize(summary: PathSummary[Any]) -> PathSummary[Any] | None:
        return None if summary.results_in(least) is None else UnitSummary()

    return Refinement(outer, inner, lambda time: least, lambda time: Unit(), summarize)
