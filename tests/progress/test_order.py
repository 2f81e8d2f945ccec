"""Orders, path summaries, time domains and refinements: the exact results, and the laws on random samples."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from typing import Any, get_args, get_origin
from unittest.mock import ANY

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.timestamps.lexicographic_pair import LogTime
from tests.progress.times import Clock
from tests.testing import kits
from timely.errors import TimestampError
from timely.operators.results import Err, Ok
from timely.order import Product, less_equal, linear_extension, reaches, sort_key
from timely.progress import (
    Antichain,
    ChangeBatch,
    GraphBuilder,
    LoopSummary,
    LoopTime,
    MutableAntichain,
    ProductSummary,
    Source,
    Step,
    Target,
    Unchanged,
    Unit,
    UnitSummary,
    refinement,
    time_domain,
)
from timely.testing import summaries, times

MAX = 2**64 - 1
NATURALS = st.integers(0, 4)
SPECS: list[Any] = [
    int,
    Unit,
    Product[int, int],
    Product[Unit, int],
    Product[Product[int, int], int],
    Product[int, Product[int, int]],
]


class Bits(int):
    """Sets of small numbers as bits: whole numbers, and ordered by inclusion."""

    def __le__(self, other: int) -> bool:
        return int(self) & other == int(self)

    def __lt__(self, other: int) -> bool:
        return int(self) != other and self <= other


class Turned(int):
    """Whole numbers that say how they are sorted, which is not as they come."""

    def sort_key(self) -> int:
        return int(self) % 10


class Latest(Product[int, int]):
    """Pairs of which a smaller first number is later: a product in no more than its parts."""

    def __le__(self, other: tuple[Any, ...]) -> bool:
        return bool(self[0] >= other[0] and self[1] <= other[1])


class Quarter(kits.Quarter):
    """A quarter of an hour: a totally ordered time type of one's own that refines whole numbers."""

    @classmethod
    def is_total(cls) -> bool:
        return True


TIMES: dict[str, st.SearchStrategy[Any]] = {str(spec): times(spec) for spec in SPECS}
TIMES["Clock"] = st.builds(Clock, NATURALS, NATURALS, NATURALS)
STEPS = st.builds(Step, NATURALS, st.none() | st.integers(-1, 7))
"""Steps whose limits are reached, and some that nothing passes."""


def test_O1_results_in() -> None:
    assert Step(3, limit=MAX).results_in(5) == 8
    assert Step(3, limit=MAX).results_in(MAX - 2) is None


def test_O2_followed_by_overflows() -> None:
    assert Step(5, limit=MAX).followed_by(Step(MAX - 3, limit=MAX)) is None


def test_O3_composition() -> None:
    both = Step(5).followed_by(Step(15))
    assert both is not None
    assert both.results_in(10) == 30
    assert Step(15).results_in(Step(5).results_in(10) or 0) == 30


def test_O5_lexicographic_pair() -> None:
    early, late = LogTime(0, 5), LogTime(3, 0)
    assert early < late and early <= late and not late <= early
    assert not Product(0, 5) <= Product(3, 0)
    assert LogTime(1, 2).results_in(late) == LogTime(4, 2), "a summary acts on each coordinate"
    assert LogTime(1, 2).followed_by(LogTime(0, 7)) == LogTime(1, 9)
    assert LogTime(0, 7) <= LogTime(1, 2) and LogTime.identity().results_in(early) == early
    assert LoopTime(0, (0, 5)) < LoopTime(0, (3, 0))
    graph: GraphBuilder[LogTime] = GraphBuilder(LogTime)
    graph.add_node("body", 1, 1, [[Antichain([LogTime(0, 1)])]], observes=[0])
    graph.add_edge(Source("body", 0), Target("body", 0))
    tracker = graph.build()
    tracker.update(Source("body", 0), late, +1)
    tracker.update(Source("body", 0), early, +1)
    tracker.propagate()
    assert tracker.frontier(Target("body", 0)) == Antichain([early])


def test_O4_product_order() -> None:
    assert not Product(0, 5) <= Product(3, 0)
    assert not Product(3, 0) <= Product(0, 5)
    assert Product(0, 0) <= Product(1, 1)
    assert Product(0, 0) < Product(1, 1)
    assert Product(1, 1) > Product(0, 0)
    assert not Product(3, 0) > Product(0, 5)
    assert not Product(3, 0) >= Product(0, 5)


def test_O6_less_than_is_strict() -> None:
    assert not Product(2, 3) < Product(2, 3)
    assert not Product(2, 3) > Product(2, 3)
    assert not Unit() < Unit()
    assert not Step(1) < Step(1)


def test_summaries_of_pairs_are_strictly_ordered() -> None:
    summary, later, aside = (ProductSummary(Step(outer), Step(inner)) for outer, inner in ((1, 1), (1, 2), (2, 0)))
    assert summary < later
    assert not summary < summary and not later < summary
    assert not summary < aside and not aside < summary


VALUES: list[tuple[Any, tuple[Any, ...]]] = [
    (Step, (2,)),
    (Step, (2, 9)),
    (UnitSummary, ()),
    (Unchanged, ()),
    (ProductSummary, (Step(0), Step(1))),
    (LoopTime, (0, (1,))),
    (LoopSummary, (1,)),
    (Source, (0, 1)),
    (Target, (0, 1)),
    (Antichain, ([2],)),
    (ChangeBatch, ([(2, 1)],)),
    (MutableAntichain, ()),
    (Ok, (1,)),
    (Err, ("no",)),
]


@pytest.mark.parametrize(("base", "arguments"), VALUES, ids=str)
def test_law_3_a_derived_class_shows_its_own_name(base: Any, arguments: tuple[Any, ...]) -> None:
    own = type("Own", (base,), {})
    assert repr(own(*arguments)) == repr(base(*arguments)).replace(base.__name__, "Own", 1)


@pytest.mark.parametrize("summary", [Step(1), ProductSummary(Step(0), Step(1)), LoopSummary.feedback(1)], ids=repr)
def test_summaries_are_not_compared_with_anything_else(summary: Any) -> None:
    for other in (3, None, (0, 1)):
        with pytest.raises(TypeError, match="not supported between"):
            assert summary <= other
        assert (summary == other) is False


@pytest.mark.parametrize("summary", [Step(1), ProductSummary(Step(0), Step(1))], ids=repr)
def test_another_type_may_equal_a_summary(summary: Any) -> None:
    assert summary == ANY


def test_the_one_summary_of_the_one_time_is_not_before_itself() -> None:
    assert (UnitSummary() < UnitSummary()) is False
    assert (UnitSummary() <= UnitSummary()) is True
    assert Unit.is_total() is True
    assert time_domain(Product[Unit, int]).key(Product(Unit(), 3)) == (0, 3)


def test_a_round_of_an_outer_loop_is_not_before_one_of_the_loop_in_it() -> None:
    outer, inner = LoopSummary.feedback(1), LoopSummary.feedback(2)
    assert (outer <= inner) is False
    assert (inner <= outer) is (inner < outer) is True


@pytest.mark.parametrize("depth", [0, -1, True, "1"])
def test_loops_are_counted_from_one(depth: Any) -> None:
    for leg in (LoopSummary.ingress, LoopSummary.egress, LoopSummary.feedback):
        with pytest.raises(TimestampError, match=f"depth of a loop is 1 for an outermost one.*not {depth!r}"):
            leg(depth)


def test_O7_product_refines() -> None:
    into = refinement(int, Product[int, int])
    assert into.to_inner(7) == Product(7, 0)
    assert into.to_outer(Product(7, 3)) == 7
    assert into.summarize(ProductSummary(Step(2), Step(9))) == Step(2)
    assert into.summarize(ProductSummary(Step(2), Step(9, limit=3))) is None
    assert not into.identity


def test_product_is_a_type_of_times() -> None:
    spec = Product[Product[int, int], int]
    assert (get_origin(spec), get_args(spec)) == (Product, (Product[int, int], int))
    assert repr(Product(Product(0, 1), 2)) == "((0, 1), 2)"


@pytest.mark.parametrize("spec", SPECS, ids=str)
@given(data=st.data())
def test_T4_composition_is_associative_and_the_identity_is_the_least(spec: Any, data: st.DataObject) -> None:
    """The other laws are those of ``tests/testing/test_laws.py``."""
    a, b, c = (data.draw(summaries(spec)) for _ in range(3))
    assert time_domain(spec).identity <= a
    both, later = a.followed_by(b), b.followed_by(c)
    assert (None if both is None else both.followed_by(c)) == (None if later is None else a.followed_by(later))


@given(first=STEPS, second=STEPS)
def test_T4_step_order_is_pointwise(first: Step, second: Step) -> None:
    results = [(first.results_in(time), second.results_in(time)) for time in range(12)]
    pointwise = all(later is None or (earlier is not None and earlier <= later) for earlier, later in results)
    assert (first <= second) == pointwise
    assert (first < second) == (pointwise and first != second)


@pytest.mark.parametrize("strategy", TIMES.values(), ids=TIMES)
@given(data=st.data())
def test_T4_sorted_extends_the_order(strategy: st.SearchStrategy[Any], data: st.DataObject) -> None:
    given_times = data.draw(st.lists(strategy, max_size=8))
    result = linear_extension(given_times)
    assert len(result) == len(given_times) and set(result) == set(given_times)
    assert not any(later < earlier for index, earlier in enumerate(result) for later in result[index:])
    assert linear_extension(given_times) == result


@given(numbers=st.lists(st.integers(0, 31), max_size=8), other=st.integers(0, 9))
def test_T4_numbers_and_pairs_that_compare_in_their_own_way_are_sorted_so(numbers: list[int], other: int) -> None:
    sets: list[Any] = [Bits(number) for number in numbers]
    pairs: list[Any] = [Product(time, other) for time in sets]
    latest: list[Any] = [Latest(number, other) for number in numbers]
    for unsorted in (sets, pairs, latest):
        result = linear_extension(unsorted)
        assert sorted(result, key=repr) == sorted(unsorted, key=repr)
        assert not any(later <= earlier != later for index, earlier in enumerate(result) for later in result[index:])
    assert linear_extension([Turned(12), Turned(3), Turned(31)]) == [31, 12, 3]


@pytest.mark.parametrize("name", ["minimum", "identity"])
def test_what_is_called_on_the_class_is_to_be_a_class_method(name: str) -> None:
    methods: dict[str, Any] = {"minimum": classmethod(lambda cls: cls(0)), "identity": classmethod(lambda cls: Step(0))}
    assert time_domain(type("Dusk", (int,), methods)).minimum == 0
    wrong = type("Dusk", (int,), methods | {name: lambda self: 0})
    with pytest.raises(TimestampError, match=rf"^Dusk.{name}\(\) is called on the class: make it a class method"):
        time_domain(wrong)


def test_a_time_that_cannot_be_compared_with_the_minimum_is_none() -> None:
    @attrs.frozen(order=True)
    class Instant:
        at: datetime

        @classmethod
        def minimum(cls) -> Instant:
            return cls(datetime(2020, 1, 1))

        @classmethod
        def identity(cls) -> Step:
            return Step(0)

    domain: Any = time_domain(Instant)
    domain.check(Instant(datetime(2021, 1, 1)))
    with pytest.raises(TimestampError, match="it cannot be compared with the minimum, .*: TypeError: can't compare offset-naive"):
        domain.check(Instant(datetime(2021, 1, 1, tzinfo=UTC)))


def test_T4_a_subclass_that_compares_as_numbers_do_has_a_key() -> None:
    hour = type("Hour", (int,), {})
    assert [sort_key(hour(3)), sort_key(True), sort_key(Bits(3))] == [3, 1, None]


@pytest.mark.parametrize(
    ("spec", "name", "total"),
    [
        (int, "int", True),
        (Unit, "Unit", True),
        (Product[int, Unit], "Product[int, Unit]", True),
        (Product[Product[Unit, Unit], int], "Product[Product[Unit, Unit], int]", True),
        (Product[int, int], "Product[int, int]", False),
        (Product[Product[Unit, int], int], "Product[Product[Unit, int], int]", False),
        (Product[int, Product[int, Unit]], "Product[int, Product[int, Unit]]", False),
        (Product[Clock, Unit], "Product[Clock, Unit]", False),
        (Quarter, "Quarter", True),
        (Clock, "Clock", False),
    ],
)
def test_time_domain_describes(spec: Any, name: str, total: bool) -> None:
    domain = time_domain(spec)
    assert (domain.name, domain.total) == (name, total)
    assert domain is time_domain(spec)
    assert repr(domain) == f"time_domain({name})"
    assert pickle.loads(pickle.dumps(domain)) is domain


@pytest.mark.parametrize(
    ("spec", "time", "says"),
    [
        (int, -1, "before the minimum"),
        (int, True, "of type bool"),
        (int, "3", "of type str"),
        (Unit, 0, "of type int"),
        (Product[int, int], 3, "of type int, not Product"),
        (Product[int, int], (0, 0), "of type tuple, not Product"),
        (Product[int, Product[int, int]], Product(0, Product(0, -2)), "-2 is before the minimum"),
        (Clock, 3, "of type int, not Clock"),
        (Quarter, Quarter(-1), "before the minimum|not beyond the minimum"),
    ],
)
def test_check_refuses(spec: Any, time: object, says: str) -> None:
    with pytest.raises(TimestampError, match=says):
        time_domain(spec).check(time)


def test_times_of_loops_are_sorted_by_epoch_and_then_by_counters() -> None:
    domain, rounds = time_domain(LoopTime), [LoopTime(1, (0, 5)), LoopTime(0, (2, 0)), LoopTime(0, (1, 9)), LoopTime(1, (0,))]
    assert [domain.key(time) for time in rounds] == [(1, (0, 5)), (0, (2, 0)), (0, (1, 9)), (1, (0,))]
    assert linear_extension(rounds) == [rounds[2], rounds[1], rounds[3], rounds[0]]


class NoHash(Quarter):
    """Times need a hash."""

    __hash__ = None  # type: ignore[assignment]  # what the test is about


class WrongMinimum(Quarter):
    """Its minimum is of another type."""


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (list, r"lacks the class method minimum\(\), the class method identity\(\), __hash__\(\)"),
        (object, r"lacks __le__\(\), __lt__\(\), the class method minimum\(\), the class method identity\(\)"),
        (Product, "Product alone"),
        (Product[int, complex], "complex cannot be a type of times"),  # type: ignore[type-var]
        (NoHash, r"lacks __hash__\(\)"),
        (3, "3 is not a type of times"),
        ([int], "is not a type of times"),
    ],
)
def test_bad_time_types(spec: Any, says: str) -> None:
    with pytest.raises(TimestampError, match=says):
        time_domain(spec)


def test_minimum_of_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrongMinimum, "minimum", classmethod(lambda cls: 0))
    with pytest.raises(TimestampError, match="returned 0, which is no WrongMinimum"):
        time_domain(WrongMinimum)


def test_steps_go_forward() -> None:
    with pytest.raises(TimestampError, match=r"Step\(-1\) does not advance"):
        Step(-1)
    with pytest.raises(TimestampError, match="limit"):
        Step(1, limit="ten")  # type: ignore[arg-type]  # what the test is about


def test_steps_that_nothing_passes_are_one() -> None:
    assert Step(3, limit=2) == Step(1, limit=0)
    assert Step(3, limit=2).results_in(0) is None
    assert (Step(3, limit=2).n, Step(3, limit=2).limit) == (0, -1)
    assert Step(9) < Step(3, limit=2)
    assert Step(9, limit=9) < Step(3, limit=2)


@pytest.mark.parametrize(
    "value",
    [Unit(), UnitSummary(), Step(1), Step(1, limit=3), Product(1, 2), ProductSummary(Step(0), Step(1))],
    ids=repr,
)
def test_values_travel(value: object) -> None:
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value and hash(copy) == hash(value) and type(copy) is type(value)


def test_a_type_of_ones_own_refines() -> None:
    into: Any = refinement(int, Quarter)
    assert (into.outer, into.inner, into.identity) == (time_domain(int), time_domain(Quarter), False)
    assert into.to_inner(2) == Quarter(8)
    assert into.to_outer(Quarter(9)) == 2
    assert into.summarize(kits.Quarters(5)) == Step(1)


class StaticQuarter(Quarter):
    """One whose refinement is written as static methods, as the protocol spells them."""

    @staticmethod
    def to_inner(outer: int) -> Quarter:
        return StaticQuarter(4 * outer)

    @staticmethod
    def to_outer(inner: Quarter) -> int:  # type: ignore[override]
        return inner.n // 4


class ClassQuarter(Quarter):
    """The same, as class methods."""

    @classmethod
    def to_outer(cls, inner: Quarter) -> int:  # type: ignore[override]
        return inner.n // 4


@pytest.mark.parametrize("kind", [StaticQuarter, ClassQuarter])
def test_a_type_of_ones_own_refines_by_functions_of_its_class(kind: Any) -> None:
    into: Any = refinement(int, kind)
    assert into.to_inner(2) == kind(8)
    assert into.to_outer(kind(9)) == 2
    assert into.summarize(kits.Quarters(5)) == Step(1)


def test_no_refinement() -> None:
    with pytest.raises(TimestampError, match=r"int does not refine Product\[int, int\]"):
        refinement(Product[int, int], int)
    with pytest.raises(TimestampError, match="expected a summary of"):
        refinement(int, Product[int, int]).summarize(Step(1))  # type: ignore[arg-type]  # what the test is about


@pytest.mark.parametrize("strategy", TIMES.values(), ids=TIMES)
@given(data=st.data())
def test_what_compares_without_a_method_agrees_with_the_operator(strategy: st.SearchStrategy[Any], data: st.DataObject) -> None:
    frontier, time = data.draw(st.lists(strategy, max_size=4)), data.draw(strategy)
    assert [less_equal(one, time) for one in frontier] == [one <= time for one in frontier]
    assert reaches(frontier, time) == any(one <= time for one in frontier)


class OwnStep(Step):
    __slots__ = ("reason",)
    reason: str


class OwnProduct(ProductSummary[int, int]):
    pass


class OwnLoop(LoopSummary):
    pass


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda summary: pickle.loads(pickle.dumps(summary))])
def test_a_copy_of_a_summary_is_of_its_class_and_has_its_attributes(duplicate: Any) -> None:
    own = OwnStep(3, limit=9)
    own.reason = "mine"
    assert duplicate(own) == own and duplicate(own).reason == "mine"
    for summary in (own, OwnProduct(Step(1), Step(2)), OwnLoop(1, keep=2, increment=3, append=(4,)), Step(1), LoopSummary()):
        assert type(duplicate(summary)) is type(summary)
        assert duplicate(summary) == summary and repr(duplicate(summary)) == repr(summary)
