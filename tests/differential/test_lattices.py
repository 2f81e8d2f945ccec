"""A: bounds of times, advancing by a frontier, and times of a user's own without greatest lower bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely import LoopTime, Product, Unit
from timely.errors import LawViolation, TimestampError
from timely.progress import lattice, time_domain
from timely.testing import check_lattice, time_kit

PAIR: Any = Product[int, int]
DEEP: Any = Product[Product[int, int], int]
PAIRS = lattice(PAIR)


def P(outer: Any, inner: Any) -> Product[Any, Any]:
    return Product(outer, inner)


def test_A1_bounds_of_two_products() -> None:
    assert PAIRS.lub(P(3, 7), P(4, 6)) == P(4, 7)
    assert PAIRS.glb is not None and PAIRS.glb(P(3, 7), P(4, 6)) == P(3, 6)


def test_A2_advancing_by_a_frontier_of_two() -> None:
    frontier = [P(4, 8), P(5, 3)]
    assert PAIRS.advance(P(3, 7), frontier) == P(4, 7)
    later = [P(i, j) for i in range(10) for j in range(10) if any(element <= P(i, j) for element in frontier)]
    assert [P(3, 7) <= time for time in later] == [P(4, 7) <= time for time in later]


@pytest.mark.parametrize("spec", [int, Unit, PAIR, DEEP], ids=str)
def test_A3_advancing_by_the_empty_frontier(spec: Any) -> None:
    @settings(max_examples=10)
    @given(time_kit(spec).times)
    def unchanged(time: Any) -> None:
        assert lattice(spec).advance(time, []) == time

    unchanged()


def test_A4_the_least_antichain_at_or_after_two_others() -> None:
    assert set(PAIRS.upper_envelope([P(3, 7), P(5, 6)], [P(4, 6)])) == {P(4, 7), P(5, 6)}


SHIPPED: list[Any] = [int, Unit, LoopTime, PAIR, DEEP, Product[int, PAIR], Product[DEEP, int], Product[int, LoopTime]]


@pytest.mark.parametrize("spec", SHIPPED, ids=lambda spec: time_domain(spec).name)
def test_A5_the_bounds_of_every_shipped_type_obey_the_laws(spec: Any) -> None:
    check_lattice(spec, examples=8)


@settings(max_examples=40)
@given(time_kit(DEEP).times, time_kit(DEEP).times, st.lists(time_kit(DEEP).times, max_size=5))
def test_A5_advancing_by_any_frontier_is_idempotent_and_monotone(one: Any, other: Any, frontier: list[Any]) -> None:
    times = lattice(DEEP)
    elements = times.lower_envelope(frontier)
    moved = times.advance(one, elements)
    assert times.advance(moved, elements) == moved
    assert not one <= other or moved <= times.advance(other, elements)
    assert one <= moved or not elements or not any(element <= one for element in elements)


@attrs.frozen
class Unchanged:
    """The only path summary of the times below."""

    def results_in(self, time: Any, /) -> Any:
        return time

    def followed_by(self, other: Unchanged, /) -> Unchanged:
        return self

    def __le__(self, other: Unchanged, /) -> bool:
        return True


class Tally(NamedTuple):
    """A pair of counts, with least upper bounds only."""

    left: int
    right: int

    def __le__(self, other: Any) -> bool:
        return bool(self[0] <= other[0] and self[1] <= other[1])

    def __lt__(self, other: Any) -> bool:
        return bool(self <= other and self != other)

    def __ge__(self, other: Any) -> bool:
        return bool(other <= self)

    def __gt__(self, other: Any) -> bool:
        return bool(other < self)

    def lub(self, other: Tally) -> Tally:
        return type(self)(max(self[0], other[0]), max(self[1], other[1]))

    @classmethod
    def minimum(cls) -> Tally:
        return cls(0, 0)

    @classmethod
    def identity(cls) -> Unchanged:
        return Unchanged()


TALLIES = st.builds(Tally, st.integers(0, 4), st.integers(0, 4))


def test_A6_a_type_without_glb_obeys_the_laws_of_lub() -> None:
    assert lattice(Tally).glb is None
    check_lattice(Tally, TALLIES, examples=15)


class Unordered(Tally):
    """Without bounds."""

    lub = None  # type: ignore[assignment]


class Sloppy(Tally):
    """Its greatest lower bound is too early."""

    def glb(self, other: Tally) -> Tally:
        return type(self)(0, 0)


def test_a_violation_names_the_law() -> None:
    with pytest.raises(LawViolation, match='the lattice of Sloppy breaks the law "glb idempotent"'):
        check_lattice(Sloppy, st.builds(Sloppy, st.integers(0, 2), st.integers(0, 2)), examples=30)


def test_a_type_without_bounds_is_refused() -> None:
    with pytest.raises(TimestampError, match="least upper bounds are needed"):
        check_lattice(Unordered, TALLIES)
