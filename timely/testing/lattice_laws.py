"""The laws of least upper and greatest lower bounds, which joins and compaction rest on."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from timely.progress import Lattice, lattice
from timely.testing.axioms import Law, Seen
from timely.testing.laws import _check, _type
from timely.testing.strategies import times as times_of


def lattice_laws(bounds: Lattice[Any]) -> list[Law]:
    """Return the laws of the bounds of one type of times; those of ``glb`` only where there is one."""
    lub, glb, minimum = bounds.lub, bounds.glb, bounds.domain.minimum

    def least(a: Any) -> Seen:
        return None if lub(minimum, a) == a else f"lub({minimum!r}, a) is {lub(minimum, a)!r}"

    def order(a: Any, b: Any) -> Seen:
        return None if bool(a <= b) == bool(lub(a, b) == b) else f"a <= b is {bool(a <= b)}, lub(a, b) is {lub(a, b)!r}"

    def advance(a: Any, b: Any, c: Any, d: Any) -> Seen:
        for frontier in ([], [b], bounds.lower_envelope([b, c])):
            moved = bounds.advance(a, frontier)
            for element in frontier:
                q = lub(element, d)
                if bool(moved <= q) != bool(a <= q):
                    return f"advance(a, {frontier!r}) is {moved!r}; a <= {q!r} is {bool(a <= q)}, and of it {bool(moved <= q)}"
            again = bounds.advance(moved, frontier)
            if again != moved:
                return f"advance(a, {frontier!r}) is {moved!r}, and advanced again {again!r}"
        return None

    def monotone(a: Any, b: Any, c: Any, d: Any) -> Seen:
        frontier = bounds.lower_envelope([c, d])
        one, other = bounds.advance(a, frontier), bounds.advance(b, frontier)
        return f"at {frontier!r} a advances to {one!r}, b to {other!r}" if a <= b and not one <= other else None

    laws = [
        *_semilattice(lub, "lub"),
        Law("least", "lub(minimum, a) == a", "a", least),
        Law("order", "a <= b exactly if lub(a, b) == b", "ab", order),
        Law("advance", "advance(a, [b, c]) <= q exactly if a <= q, for q at or after b or c; idempotent", "abcd", advance),
        Law("monotone advance", "if a <= b, then advance(a, [c, d]) <= advance(b, [c, d])", "abcd", monotone),
    ]
    if glb is None:
        return laws
    down = glb

    def absorption(a: Any, b: Any) -> Seen:
        up, low = lub(a, down(a, b)), down(a, lub(a, b))
        return None if up == a and low == a else f"lub(a, glb(a, b)) is {up!r}, glb(a, lub(a, b)) is {low!r}"

    return [*laws, *_semilattice(down, "glb"), Law("absorption", "lub(a, glb(a, b)) == a == glb(a, lub(a, b))", "ab", absorption)]


def _semilattice(bound: Any, name: str) -> list[Law]:
    def idempotent(a: Any) -> Seen:
        return None if bound(a, a) == a else f"it is {bound(a, a)!r}"

    def commutative(a: Any, b: Any) -> Seen:
        there, back = bound(a, b), bound(b, a)
        return None if there == back else f"{name}(a, b) is {there!r}, {name}(b, a) is {back!r}"

    def associative(a: Any, b: Any, c: Any) -> Seen:
        one, other = bound(bound(a, b), c), bound(a, bound(b, c))
        return None if one == other else f"from the left it is {one!r}, from the right {other!r}"

    return [
        Law(f"{name} idempotent", f"{name}(a, a) == a", "a", idempotent),
        Law(f"{name} commutative", f"{name}(a, b) == {name}(b, a)", "ab", commutative),
        Law(f"{name} associative", f"{name}({name}(a, b), c) == {name}(a, {name}(b, c))", "abc", associative),
    ]


def check_lattice(time: Any, strategy: st.SearchStrategy[Any] | None = None, *, examples: int | None = None) -> None:
    """Raise a ``LawViolation`` unless the bounds of times of type ``time`` obey every law.

    ``strategy`` makes the times, by default ``timely.testing.times(time)``; ``examples`` is the number of random groups.
    The laws:

    - *idempotent*, *commutative*, *associative*, for ``lub`` and ``glb``; *absorption* between them.
    - *least*: the minimum changes nothing. *order*: ``a <= b`` exactly if ``lub(a, b) == b``.
    - *advance*: a time advanced by a frontier compares with every later time as before. It is *monotone*, and idempotent.

    A type without ``glb`` is excused from its laws. ``TimestampError`` for a type without least upper bounds.

    >>> from timely import Product, Step
    >>> check_lattice(Product[int, int], examples=5)
    >>> class Greedy(int):
    ...     minimum = classmethod(lambda cls: cls(0))
    ...     lub = lambda self, other: Greedy(max(self, other) + 1)
    ...     identity = classmethod(lambda cls: Step(0))
    >>> check_lattice(Greedy, st.integers(0, 9).map(Greedy))
    Traceback (most recent call last):
    timely.errors.LawViolation: the lattice of Greedy breaks the law "lub idempotent": lub(a, a) == a
      a = 0
    but it is 1
    """
    bounds: Lattice[Any] = lattice(_type(time))
    pools = {"abcd": times_of(time) if strategy is None else strategy}
    _check(f"the lattice of {bounds.domain.name}", lattice_laws(bounds), pools, examples)
