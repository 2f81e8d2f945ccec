"""Hypothesis strategies for times and path summaries, and for the sets and batches that progress tracking makes of them.

A :class:`TimeKit` says of a type of times what everything random over it is made of. The library's own types have one
(:func:`time_kit`), a type of one's own gets one by three strategies, and kits combine as the types do. The invariant: no
summary of the kits made here goes back in time, so that a cycle advances as soon as one summary on it does. A caller may give
a kit, or a type that has one, wherever this package asks for a type of times, and may rely on small times coming first when
Hypothesis shrinks.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

import attrs
from hypothesis import strategies as st

from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import Antichain, ChangeBatch, LoopSummary, LoopTime, ProductSummary, Step, Unit, UnitSummary


@attrs.frozen
class TimeKit:
    """What random things over a type of times are made of; ``advancing`` summaries strictly advance, ``summaries`` need not.

    Neither should go back, and ``advancing`` is ``st.nothing()`` where no summary advances every time. ``inside`` are kits of
    types that refine this one: random scopes with their times are nested in scopes with these. ``parts`` are the two kits that
    a product's is made of (:meth:`product`).

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
        """Return the kit of ``Product[self.spec, inner.spec]``; its summaries advance if those of one coordinate do.

        >>> kit = time_kit(Unit).product(time_kit(int))
        >>> kit.spec == Product[Unit, int], kit.advancing.is_empty
        (True, False)
        """
        ways = [(self.summaries, inner.advancing), (self.advancing, inner.summaries)]
        able = [way for way in ways if not any(part.is_empty for part in way)]
        advancing = st.one_of([st.builds(ProductSummary, *way) for way in able])
        summaries = st.builds(ProductSummary, self.summaries, inner.summaries)
        product: Any = Product  # the coordinates are known only now, so that a type checker has nothing to say of them
        times = st.builds(Product, self.times, inner.times)
        return TimeKit(product[self.spec, inner.spec], times, advancing, summaries, (), (self, inner))

    def coordinates(self) -> list[TimeKit]:
        """Return the kits of the coordinates, the outermost first, of a product nested in its outer coordinate; else itself.

        >>> [kit.spec for kit in time_kit(Product[Product[int, Unit], int]).coordinates()]
        [<class 'int'>, <class 'timely.progress.timestamp.Unit'>, <class 'int'>]
        """
        if self.parts is not None:
            return [*self.parts[0].coordinates(), self.parts[1]]
        if get_origin(self.spec) is Product:
            raise ConfigurationError(f"the kit of {self.spec} does not say what it is a product of: make it by TimeKit.product")
        return [self]


_LIMITS = st.none() | st.integers(0, 9)
_SMALL = st.integers(0, 3)
_COUNTERS = st.lists(_SMALL, max_size=3).map(tuple)


def time_kit(spec: Any) -> TimeKit:
    """Return the kit for ``int``, ``Unit``, ``LoopTime`` or a ``Product`` of such; a kit is returned as it is.

    Of the summaries of ``LoopTime`` it has those that never go back; leaving a loop does, and is met in graphs that are
    written down. :class:`~timely.errors.ConfigurationError` for any other type: make a :class:`TimeKit` of strategies of
    one's own.

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
    """Return a strategy for path summaries of a type of times, those that strictly advance among them.

    >>> from timely.testing import smallest
    >>> smallest(summaries(int), lambda summary: summary.results_in(4) is None)
    Step(0, limit=0)
    """
    kit = time_kit(spec)
    return kit.summaries | kit.advancing


def antichains(spec: Any, *, max_size: int = 4) -> st.SearchStrategy[Antichain[Any]]:
    """Return a strategy for antichains of times, the empty one among them.

    >>> from timely.testing import smallest
    >>> set(smallest(antichains(Product[int, int]), lambda antichain: len(antichain) == 2)) == {Product(0, 1), Product(1, 0)}
    True
    """
    return st.lists(times(spec), max_size=max_size).map(Antichain)


def change_batches(spec: Any, *, max_size: int = 6) -> st.SearchStrategy[ChangeBatch[Any]]:
    """Return a strategy for batches of changes of times' counts, by -2 to 2 at a go.

    >>> from timely.testing import smallest
    >>> smallest(change_batches(int), lambda batch: any(diff < 0 for _, diff in batch))
    ChangeBatch([(0, -1)])
    """
    return st.lists(st.tuples(times(spec), st.integers(-2, 2)), max_size=max_size).map(ChangeBatch)
