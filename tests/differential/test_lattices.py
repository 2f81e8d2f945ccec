"""A: bounds of times, advancing by a frontier, and times of a user's own without greatest lower bounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from timely import LoopTime, Product, Unit
from timely import differential as dd
from timely.errors import LawViolation, TimelyWarning, TimestampError
from timely.progress import lattice, time_domain
from timely.testing import check_lattice, time_kit

PAIR: Any = Product[int, int]
DEEP: Any = Product[Product[int, int], int]
PAIRS = lattice(PAIR)


def P(outer: Any, inner: Any) -> Product[Any, Any]:
    return Product(outer, inner)


def test_DD_A1_bounds_of_two_products() -> None:
    assert PAIRS.lub(P(3, 7), P(4, 6)) == P(4, 7)
    assert PAIRS.glb is not None and PAIRS.glb(P(3, 7), P(4, 6)) == P(3, 6)


def test_DD_A2_advancing_by_a_frontier_of_two() -> None:
    frontier = [P(4, 8), P(5, 3)]
    assert PAIRS.advance(P(3, 7), frontier) == P(4, 7)
    later = [P(i, j) for i in range(10) for j in range(10) if any(element <= P(i, j) for element in frontier)]
    assert [P(3, 7) <= time for time in later] == [P(4, 7) <= time for time in later]


@pytest.mark.parametrize("spec", [int, Unit, PAIR, DEEP], ids=str)
def test_DD_A3_advancing_by_the_empty_frontier(spec: Any) -> None:
    @settings(max_examples=10)
    @given(time_kit(spec).times)
    def unchanged(time: Any) -> None:
        assert lattice(spec).advance(time, []) == time

    unchanged()


def test_DD_A4_the_least_antichain_at_or_after_two_others() -> None:
    assert set(PAIRS.upper_envelope([P(3, 7), P(5, 6)], [P(4, 6)])) == {P(4, 7), P(5, 6)}


SHIPPED: list[Any] = [int, Unit, LoopTime, PAIR, DEEP, Product[int, PAIR], Product[DEEP, int], Product[int, LoopTime]]


@pytest.mark.parametrize("spec", SHIPPED, ids=lambda spec: time_domain(spec).name)
def test_DD_A5_the_bounds_of_every_shipped_type_obey_the_laws(spec: Any) -> None:
    check_lattice(spec, examples=8)


@settings(max_examples=40)
@given(time_kit(DEEP).times, time_kit(DEEP).times, st.lists(time_kit(DEEP).times, max_size=5))
def test_DD_A5_advancing_by_any_frontier_is_idempotent_and_monotone(one: Any, other: Any, frontier: list[Any]) -> None:
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


def test_DD_A6_a_type_without_glb_obeys_the_laws_of_lub() -> None:
    assert lattice(Tally).glb is None
    check_lattice(Tally, TALLIES, examples=15)


def warnings_of(build: Callable[[Any], object], time: Any = Tally) -> list[str]:
    """Return the warnings while a dataflow of a collection of pairs is built."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with timely.Worker().dataflow(time) as scope:
            build(dd.new_collection(scope)[1])
    assert all(issubclass(warning.category, TimelyWarning) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


BUILDS: dict[str, Callable[[Any], object]] = {
    "arrangement": lambda c: c.arrange_by_key(),
    "reduction": lambda c: c.min_by_key(),
    "join": lambda c: c.join(c).join(c),
    "loop": lambda c: c.iterate(lambda scope, x: x.distinct()),
    "several": lambda c: (c.distinct(), c.count(), c.iterate(lambda scope, x: x.distinct())),
}


@pytest.mark.parametrize("name", BUILDS)
def test_DD_A6_a_type_without_glb_is_warned_of_once_when_built(name: str) -> None:
    for _ in range(2):  # for each dataflow
        (message,) = warnings_of(BUILDS[name])
        assert "Tally" in message and "Give the type a method glb(other)" in message


def test_DD_A6_what_keeps_no_history_needs_no_bounds() -> None:
    assert warnings_of(lambda c: c.map(lambda pair: pair[0]).concat(c).probe()) == []
    assert warnings_of(BUILDS["several"], PAIR) == []


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
