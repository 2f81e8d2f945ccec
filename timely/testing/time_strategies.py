"""What random values over a time type are made of: strategies for its times and path summaries.

No summary of a kit goes back in time, so that a cycle advances as soon as one summary on it does. Small times come first when
Hypothesis shrinks.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

import attrs
from hypothesis import strategies as st

from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import LoopSummary, LoopTime, ProductSummary, Step, Unit, UnitSummary


@attrs.frozen
class TimeKit:
    """What random values over a time type are made of; ``advancing`` summaries strictly advance, ``summaries`` need not.

    ``advancing`` is ``st.nothing()`` if no summary advances every time. ``inside`` are kits of types that refine this one, for
    nested scopes; ``parts`` the two kits of a product (:meth:`product`).

    >>> kit = TimeKit(int, st.integers(0, 3), st.just(Step(1)), st.just(Step(0)))
    >>> kit.spec is int
    True
    """

    spec: Any
    times: st.SearchStrategy[Any]
    advancing: st.SearchStrategy[Any]
    summaries: st.SearchStrategy[Any]
    inside: tuple[TimeKit, ...] = ()
    parts: tuple[TimeKit, TimeKit] | None = None

    def product(self, inner: TimeKit) -> TimeKit:
        """Return the kit of ``Product[self.spec, inner.spec]``; its summaries advance if those of one coordinate do."""
        ways = [(self.summaries, inner.advancing), (self.advancing, inner.summaries)]
        able = [way for way in ways if not any(part.is_empty for part in way)]
        advancing = st.one_of([st.builds(ProductSummary, *way) for way in able])
        summaries = st.builds(ProductSummary, self.summaries, inner.summaries)
        product: Any = Product  # its coordinates are known only at run time
        times = st.builds(Product, self.times, inner.times)
        return TimeKit(product[self.spec, inner.spec], times, advancing, summaries, (), (self, inner))


_LIMITS = st.none() | st.integers(0, 9)
_SMALL = st.integers(0, 3)
_COUNTERS = st.lists(_SMALL, max_size=3).map(tuple)


def time_kit(spec: Any) -> TimeKit:
    """Return the kit for ``int``, ``Unit``, ``LoopTime`` or a ``Product`` of these; a kit is returned as it is.

    :class:`~timely.errors.ConfigurationError` for any other type: make a :class:`TimeKit` of your own strategies.

    >>> time_kit(Product[int, LoopTime]).spec == Product[int, LoopTime]
    True
    """
    if isinstance(spec, TimeKit):
        return spec
    if spec is int:
        forward, steps = (st.builds(Step, st.integers(least, least + 2), _LIMITS) for least in (1, 0))
        return TimeKit(int, st.integers(0, 8), forward, steps)
    if spec is Unit:
        return TimeKit(Unit, st.builds(Unit), st.nothing(), st.builds(UnitSummary))
    if spec is LoopTime:
        rounds = st.builds(LoopSummary, _SMALL, st.integers(1, 3), st.integers(1, 2), _COUNTERS)
        later = st.builds(LoopSummary, st.integers(1, 2)) | rounds
        return TimeKit(LoopTime, st.builds(LoopTime, _SMALL, _COUNTERS), later, st.builds(LoopSummary) | later)
    if get_origin(spec) is Product:
        outer, inner = map(time_kit, get_args(spec))
        return outer.product(inner)
    raise ConfigurationError(f"no strategy is known for {spec!r}: give a TimeKit with strategies for its times and summaries")


def times(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for times of a type.

    >>> from timely.testing import smallest
    >>> smallest(times(Product[int, int]), lambda time: time.inner >= 2)
    (0, 2)
    """
    return time_kit(spec).times


def summaries(spec: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for path summaries of a time type, advancing ones among them.

    >>> from timely.testing import smallest
    >>> smallest(summaries(int), lambda summary: summary.results_in(4) is None)
    Step(0, limit=0)
    """
    kit = time_kit(spec)
    return kit.summaries | kit.advancing
