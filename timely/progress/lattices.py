"""``Lattice``: least upper and greatest lower bounds of the times of one type.

Invariant: ``advance(t, frontier) <= q`` exactly where ``t <= q``, for every ``q`` at or after an element of the frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, get_args, get_origin

from timely.errors import TimestampError
from timely.order import PartialOrder, Product
from timely.progress.antichain import Antichain
from timely.progress.domain import TimeDomain, time_domain

T = TypeVar("T", bound=PartialOrder)

_pair = tuple.__new__


class Lattice(Generic[T]):
    """The bounds of two times of one type, from :func:`lattice`.

    ``lub`` returns the earliest time at or after both of its arguments. ``glb`` returns the latest time at or before both; it is
    ``None`` for a type without greatest lower bounds, which then compacts at frontiers of one element only.
    """

    __slots__ = ("domain", "glb", "lub")

    def __init__(self, domain: TimeDomain[T], lub: Callable[[T, T], T], glb: Callable[[T, T], T] | None) -> None:
        self.domain = domain
        self.lub = lub
        self.glb = glb

    def advance(self, time: T, frontier: Sequence[T]) -> T:
        """Return the latest time that compares with everything at or after ``frontier`` as ``time`` does.

        >>> lattice(Product[int, int]).advance(Product(3, 7), [Product(4, 8), Product(5, 3)])
        (4, 7)
        """
        if len(frontier) == 1:
            return self.lub(time, frontier[0])
        if not frontier or self.glb is None:
            return time
        bounds = [self.lub(time, element) for element in frontier]
        advanced = bounds[0]
        for bound in bounds[1:]:
            advanced = self.glb(advanced, bound)
        return advanced

    def lower_envelope(self, times: Iterable[T]) -> list[T]:
        """Return the minimal elements of ``times``, each once.

        >>> lattice(int).lower_envelope([3, 5, 3])
        [3]
        """
        return list(Antichain(times))

    def upper_envelope(self, one: Iterable[T], other: Iterable[T]) -> list[T]:
        """Return the least antichain of which every element is at or after an element of ``one`` and an element of ``other``.

        >>> lattice(Product[int, int]).upper_envelope([Product(3, 7), Product(5, 6)], [Product(4, 6)])
        [(4, 7), (5, 6)]
        """
        others = list(other)
        return self.lower_envelope(self.lub(first, second) for first in one for second in others)

    def __repr__(self) -> str:
        return f"lattice({self.domain.name})"


_LATTICES: dict[object, Lattice[Any]] = {}


def lattice(time: Any) -> Lattice[Any]:
    """Return the lattice of a type of times, always the same object.

    Total orders have the later and the earlier of two times, products go coordinate by coordinate, and a type of your own offers
    ``lub(other)`` and, to compact at frontiers of several elements, ``glb(other)``. ``TimestampError`` for a type without.

    >>> lattice(int).lub(3, 5), lattice(Product[int, int]).glb(Product(3, 7), Product(4, 6))
    (5, (3, 6))
    """
    domain = time_domain(time)
    known = _LATTICES.get(domain.spec)
    if known is None:
        known = _LATTICES.setdefault(domain.spec, _resolve(domain))
    return known


def _resolve(domain: TimeDomain[Any]) -> Lattice[Any]:
    time = domain.spec
    if get_origin(time) is Product:
        return _of_product(domain, *map(lattice, get_args(time)))
    if callable(getattr(time, "lub", None)):
        has_glb = callable(getattr(time, "glb", None))
        return Lattice(domain, lambda one, two: one.lub(two), (lambda one, two: one.glb(two)) if has_glb else None)
    if domain.total:
        return Lattice(domain, _later, _earlier)
    raise TimestampError(
        f"least upper bounds are needed, and times of type {domain.name} have none: give the type a method lub(other) that"
        " returns the earliest time at or after both, and glb(other), the latest at or before both; or is_total() if every two"
        " of its times are comparable"
    )


def _later(one: Any, two: Any) -> Any:
    return two if one <= two else one


def _earlier(one: Any, two: Any) -> Any:
    return one if one <= two else two


def _of_product(domain: TimeDomain[Any], outer: Lattice[Any], inner: Lattice[Any]) -> Lattice[Any]:
    def lub(one: Any, two: Any) -> Any:
        return _pair(Product, (outer_lub(one[0], two[0]), inner_lub(one[1], two[1])))

    outer_lub, inner_lub, outer_glb, inner_glb = outer.lub, inner.lub, outer.glb, inner.glb
    if outer_glb is None or inner_glb is None:
        return Lattice(domain, lub, None)
    down, down_inner = outer_glb, inner_glb
    return Lattice(domain, lub, lambda one, two: _pair(Product, (down(one[0], two[0]), down_inner(one[1], two[1]))))
