"""The law checks: silent on all types that the library ships, naming the law for types that break one each. The guide is true.

White box: that every law has a type that breaks it, and is named in the guide, is checked against the list of all laws.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from tests.testing.kits import KITS
from timely import LoopTime, Product, Step, Unit
from timely.errors import LawViolation, TimelyError, TimestampError
from timely.progress import refinement, time_domain
from timely.testing import (
    TimeKit,
    axioms,
    check_lattice,
    check_refinement,
    check_summary,
    check_timestamp,
    smallest,
    time_kit,
    times,
)

SHIPPED: list[Any] = [int, Unit, LoopTime]
SHIPPED += [time_kit(outer).product(time_kit(inner)).spec for outer in SHIPPED for inner in SHIPPED]
SHIPPED += [Product[Product[int, int], int], Product[Product[LoopTime, Unit], Product[int, LoopTime]]]


@pytest.mark.parametrize("spec", SHIPPED, ids=str)
def test_T4_every_type_that_is_shipped_obeys_the_laws(spec: Any) -> None:
    check_timestamp(spec)
    check_summary(spec)
    check_refinement(spec, spec)
    check_refinement(spec, Product[spec, int])
    check_refinement(Unit, spec)


CHECKS: dict[str, Callable[[], Any]] = {
    "timestamp": lambda: check_timestamp(int),
    "summary": lambda: check_summary(int),
    "refinement": lambda: check_refinement(int, Product[int, int]),
    "lattice": lambda: check_lattice(int),
    "smallest": lambda: smallest(times(int)),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_law_1_a_slow_type_passes_whatever_deadline_a_profile_has(check: Callable[[], Any]) -> None:
    before = settings.get_current_profile_name()
    settings.register_profile("hurried", deadline=timedelta(microseconds=1))
    settings.load_profile("hurried")
    try:
        check()
    finally:
        settings.load_profile(before)


SHOWN = {name: kit for name, kit in KITS.items() if name == "bounded_loop" or kit.inside or kit.spec not in SHIPPED}
"""The kits that the types that are shipped do not cover: ``bounded_loop`` has path summaries of its own."""


@pytest.mark.parametrize("kit", SHOWN.values(), ids=SHOWN.keys())
def test_T4_every_type_that_is_shown_obeys_the_laws(kit: TimeKit) -> None:
    check_timestamp(kit)
    check_summary(kit)
    for inside in (kit, kit.product(time_kit(int)), *kit.inside):
        check_refinement(kit, inside)
    check_refinement(Unit, kit)


@attrs.frozen(eq=False)
class Mark:
    """A time that obeys every law; what breaks them is made from it."""

    n: int

    def __le__(self, other: Any) -> bool:
        return bool(self.n <= other.n)

    def __lt__(self, other: Any) -> bool:
        return bool(self.n < other.n)

    def __eq__(self, other: Any) -> bool:
        return bool(self.n == other.n)

    def __hash__(self) -> int:
        return hash(self.n)

    @classmethod
    def minimum(cls) -> Any:
        return cls(0)

    @classmethod
    def identity(cls) -> Any:
        return Move(0)


@attrs.frozen(eq=False)
class Move:
    """A path summary that obeys every law, as long as it does not move back."""

    by: int
    tag: int = 0

    def results_in(self, time: Any) -> Any:
        return type(time)(time.n + self.by)

    def followed_by(self, other: Any) -> Any:
        return type(self)(self.by + other.by)

    def __le__(self, other: Any) -> bool:
        return bool(self.by <= other.by)

    def __eq__(self, other: Any) -> bool:
        return bool((self.by, self.tag) == (other.by, other.tag))

    def __hash__(self) -> int:
        return hash((self.by, self.tag))


NUMBERS = st.integers(0, 7)
MANY = 5_000
"""Groups tried where a fault is certain to be there: the search ends with the first one that shows it."""


def make(base: type, **methods: Any) -> Any:
    """A class like ``base``, with some methods of its own."""
    return type(base.__name__, (base,), {"__hash__": base.__hash__, **methods})


WRONG_TIMES: dict[str, tuple[Any, tuple[int, ...]]] = {  # and the simplest values that show it
    "equality": (make(Mark, __eq__=lambda a, b: a.n <= b.n, __hash__=lambda a: 0), (0, 1)),
    "hash": (make(Mark, __hash__=lambda a: id(a)), (0, 0)),
    "reflexive": (make(Mark, __le__=lambda a, b: a.n < b.n), (0,)),
    "antisymmetric": (make(Mark, __le__=lambda a, b: a.n * b.n == 0 or a.n <= b.n), (0, 1)),
    "transitive": (
        make(
            Mark,
            __le__=lambda a, b: a.n <= b.n and (a.n, b.n) != (1, 3),
            __lt__=lambda a, b: a.n < b.n and (a.n, b.n) != (1, 3),
        ),
        (1, 2, 3),
    ),
    "strict": (make(Mark, __lt__=lambda a, b: a.n <= b.n), (0, 0)),
    "converse": (make(Mark, __ge__=lambda a, b: True), (0, 1)),
    "minimum": (make(Mark, minimum=classmethod(lambda cls: cls(1))), (0,)),
    "identity": (make(Mark, identity=classmethod(lambda cls: Move(1))), (0,)),
    "sort key": (make(Mark, sort_key=lambda a: -a.n), (0, 1)),
    "total": (
        make(
            Mark,
            __le__=lambda a, b: a.n == 0 or a.n == b.n,
            __lt__=lambda a, b: a.n == 0 < b.n,
            is_total=classmethod(lambda cls: True),
        ),
        (1, 2),
    ),
    "least upper bound": (make(Mark, lub=lambda a, b: type(a)(a.n + b.n)), (1, 1, 1)),
}


def numbers(violation: LawViolation) -> tuple[int, ...]:
    """The counterexample of a violation, as numbers."""
    counterexample: list[Any] = list(violation.counterexample.values())
    return tuple(getattr(value, "n", getattr(value, "by", value)) for value in counterexample)


def test_the_types_that_wrong_ones_are_made_from_are_right() -> None:
    check_timestamp(Mark, st.builds(Mark, NUMBERS))
    check_summary(Mark, st.builds(Move, NUMBERS), st.builds(Mark, NUMBERS))


@pytest.mark.parametrize("law", WRONG_TIMES)
def test_T9_a_time_that_breaks_one_law_is_found_by_its_name(law: str) -> None:
    wrong, simplest = WRONG_TIMES[law]
    with pytest.raises(LawViolation, match=f'Mark breaks the law "{law}": ') as caught:
        check_timestamp(wrong, st.builds(wrong, NUMBERS), examples=MANY)
    assert (caught.value.law, numbers(caught.value)) == (law, simplest)


WRONG_SUMMARIES: dict[str, tuple[Any, tuple[int, ...]]] = {  # and the simplest values that show it
    "equality": (make(Move, __eq__=lambda p, q: p.by <= q.by, __hash__=lambda p: 0), (0, 1)),
    "hash": (make(Move, __hash__=lambda p: id(p)), (0, 0)),
    "reflexive": (make(Move, __le__=lambda p, q: p.by < q.by), (0,)),
    "antisymmetric": (make(Move, __le__=lambda p, q: p.by // 2 <= q.by // 2), (0, 1)),
    "transitive": (make(Move, __le__=lambda p, q: q.by - p.by in (0, 1)), (0, 1, 2)),
    "closed": (make(Move, results_in=lambda p, a: a.n if p.by else a), (1, 0)),
    "monotone in time": (
        make(
            Move,
            results_in=lambda p, a: type(a)(a.n ^ p.by),
            followed_by=lambda p, q: type(p)(p.by ^ q.by),
            __le__=lambda p, q: p.by == q.by,
        ),
        (1, 0, 1),
    ),
    "monotone in summary": (make(Move, __le__=lambda p, q: p.by >= q.by), (1, 0, 0)),
    "identity": (
        make(
            Move,
            followed_by=lambda p, q: type(p)(p.by + q.by, p.tag + q.tag + 1),
            __le__=lambda p, q: p.by <= q.by and p.tag == q.tag,
        ),
        (0, 0),
    ),
    "composition": (make(Move, followed_by=lambda p, q: max(p, q, key=lambda summary: summary.by)), (1, 1, 0)),
    "monotone composition": (make(Move, __le__=lambda p, q: p.by == q.by or (p.by <= q.by and q.by <= 3)), (0, 1, 3, 0)),
}


def test_T9_a_sort_key_that_is_only_partially_ordered_is_found() -> None:
    sets = make(Mark, sort_key=lambda a: frozenset(range(a.n)) if a.n != 2 else frozenset("x"))
    unordered = make(sets, __le__=lambda a, b: a.n in (0, b.n), __lt__=lambda a, b: a.n == 0 < b.n)
    with pytest.raises(LawViolation, match='breaks the law "sort key": .* any two keys are comparable') as caught:
        check_timestamp(unordered, st.builds(unordered, NUMBERS), examples=MANY)
    assert numbers(caught.value) == (1, 2)


@pytest.mark.parametrize("law", WRONG_SUMMARIES)
def test_T9_a_summary_that_breaks_one_law_is_found_by_its_name(law: str) -> None:
    wrong, simplest = WRONG_SUMMARIES[law]
    violation = against(wrong, st.builds(wrong, NUMBERS))
    assert str(violation).startswith(f'a summary of Mark breaks the law "{law}": ')
    assert (violation.law, numbers(violation)) == (law, simplest)


def test_T9_a_violation_has_simple_values_also_where_the_first_ones_broke_the_law() -> None:
    wrong, simplest = WRONG_SUMMARIES["monotone composition"]
    assert {numbers(against(wrong, st.builds(wrong, NUMBERS))) for _ in range(3)} == {simplest}


def against(wrong: Any, summaries: st.SearchStrategy[Any]) -> LawViolation:
    """What ``check_summary`` has to object to in summaries of a class."""
    times = make(Mark, identity=classmethod(lambda cls: wrong(0)))
    with pytest.raises(LawViolation) as caught:
        check_summary(times, summaries, NUMBERS.map(times), examples=MANY)
    return caught.value


def test_T9_a_summary_that_leads_out_of_the_type_is_found() -> None:
    violation = against(Move, st.builds(Move, st.integers(-3, 3)))
    assert violation.law == "closed"
    assert violation.counterexample["p"] == Move(-1)
    assert "is not beyond the minimum" in str(violation)


def test_T9_an_identity_that_leads_out_of_the_type_is_found() -> None:
    class Other(Mark):
        """Equal to a mark of the same number, and no such."""

    astray = make(Move, results_in=lambda p, a: Mark(a.n))
    times = make(Other, identity=classmethod(lambda cls: astray(0)))
    with pytest.raises(LawViolation, match=r"Mark\(n=0\) is of type Mark, not Other") as caught:
        check_timestamp(times, NUMBERS.map(times))
    assert (caught.value.law, numbers(caught.value)) == ("identity", (0,))


def test_T9_a_summary_that_changes_the_time_it_is_given_is_found() -> None:
    def add(p: Any, a: Any) -> Any:
        object.__setattr__(a, "n", a.n + p.by)
        return a

    wrong = make(Move, results_in=add)
    times = make(Mark, identity=classmethod(lambda cls: wrong(0)))
    with pytest.raises(LawViolation, match=r"but after it, p is Move\(by=1, tag=0\) and a is Mark\(n=1\)") as caught:
        check_summary(times, st.builds(wrong, NUMBERS), NUMBERS.map(times), examples=MANY)
    assert (caught.value.law, numbers(caught.value)) == ("closed", (1, 0))


def test_T9_a_bound_that_is_not_above_both_is_found() -> None:
    wrong = make(Mark, lub=lambda a, b: a)
    with pytest.raises(LawViolation, match="but a.lub\\(b\\) is Mark\\(n=0\\)") as caught:
        check_timestamp(wrong, NUMBERS.map(wrong), examples=MANY)
    assert (caught.value.law, numbers(caught.value)) == ("least upper bound", (0, 1, 0))


def test_nothing_gets_through_is_later_than_everything() -> None:
    gate = make(
        Move,
        results_in=lambda p, a: a if a.n >= p.by else None,
        followed_by=lambda p, q: max(p, q, key=lambda summary: summary.by),
    )
    violation = against(gate, st.builds(gate, NUMBERS))
    assert violation.law == "monotone in time"
    assert [str(value) for value in violation.counterexample.values()] == ["Move(by=1, tag=0)", "Mark(n=0)", "Mark(n=1)"]


def test_nothing_gets_through_is_wrong_of_a_path_that_passes() -> None:
    blocked = make(Move, followed_by=lambda p, q: None if p.by and q.by else type(p)(p.by + q.by))
    violation = against(blocked, st.builds(blocked, NUMBERS))
    assert violation.law == "composition"
    assert str(violation).endswith("but p.followed_by(q) is None, which results in None, in turn in Mark(n=2)")


class Quarter(Mark):
    """A quarter of an hour: it refines whole numbers of hours."""

    @classmethod
    def to_inner(cls, outer: int) -> Any:
        return cls(4 * outer)

    def to_outer(self) -> Any:
        return self.n // 4

    @classmethod
    def summarize(cls, summary: Move) -> Any:
        return Step(summary.by // 4)


WRONG_REFINEMENTS: dict[str, tuple[Any, tuple[int, ...]]] = {  # and the simplest values that show it
    "closed": (make(Quarter, to_inner=classmethod(lambda cls, outer: 4 * outer)), (0, 0)),
    "round trip": (make(Quarter, to_outer=lambda x: x.n // 4 + 1), (0,)),
    "monotone inward": (make(Quarter, __le__=lambda x, y: x.n == 0 or x.n == y.n), (1, 2)),
    "monotone outward": (make(Quarter, to_outer=lambda x: x.n // 4 + (x.n % 4 == 1)), (1, 2)),
    "rounding down": (make(Quarter, to_outer=lambda x: -(-x.n // 4)), (1,)),
    "conservative": (make(Quarter, summarize=classmethod(lambda cls, summary: Step(summary.by))), (1, 0)),
}


def refine(inner: Any) -> None:
    check_refinement(int, inner, st.builds(Move, NUMBERS), inner_times=NUMBERS.map(inner))


def test_a_refinement_of_ones_own_obeys_the_laws() -> None:
    refine(Quarter)


@pytest.mark.parametrize("law", WRONG_REFINEMENTS)
def test_T9_a_refinement_that_breaks_one_law_is_found_by_its_name(law: str) -> None:
    with pytest.raises(LawViolation, match=f'Quarter in int breaks the law "{law}": ') as caught:
        refine(WRONG_REFINEMENTS[law][0])
    assert (caught.value.law, numbers(caught.value)) == (law, WRONG_REFINEMENTS[law][1])


def test_T9_a_refinement_that_denies_a_path_is_found() -> None:
    with pytest.raises(LawViolation, match="but summarize\\(p\\) is None and results in None, inside it was 0") as caught:
        refine(make(Quarter, summarize=classmethod(lambda cls, summary: None)))
    assert caught.value.law == "conservative"


def test_T9_there_is_a_wrong_type_for_every_law() -> None:
    domain = time_domain(int)
    of_times = axioms.order_laws("abc") + axioms.time_laws(domain)
    of_summaries = axioms.order_laws("pqr", strict=False) + axioms.summary_laws(domain)
    of_refinements = axioms.refinement_laws(refinement(int, int))
    for laws, wrong in ((of_times, WRONG_TIMES), (of_summaries, WRONG_SUMMARIES), (of_refinements, WRONG_REFINEMENTS)):
        assert {law.name for law in laws} == wrong.keys()


def test_a_kit_makes_times_and_summaries() -> None:
    kit = TimeKit(Mark, st.builds(Mark, NUMBERS), st.builds(Move, st.integers(1, 3)), st.builds(Move, NUMBERS))
    check_timestamp(kit)
    check_summary(kit)
    check_refinement(Unit, kit)


def test_a_violation_is_an_error_of_ours_and_a_failed_assertion_and_travels() -> None:
    with pytest.raises(LawViolation) as caught:
        check_timestamp(int, st.just(-1))
    violation = pickle.loads(pickle.dumps(caught.value))
    assert issubclass(LawViolation, AssertionError) and issubclass(LawViolation, TimelyError)
    assert (violation.law, violation.counterexample, str(violation)) == ("minimum", {"a": -1}, str(caught.value))


def test_as_many_examples_are_tried_as_are_asked_for() -> None:
    tried: list[int] = []
    check_timestamp(int, st.builds(lambda n: tried.append(n) or n, NUMBERS), examples=7)  # type: ignore[func-returns-value]
    assert 7 <= len(tried) <= 100


def test_what_is_no_type_of_times_is_refused() -> None:
    with pytest.raises(TimestampError, match="it lacks"):
        check_timestamp(list, st.lists(NUMBERS))


def test_an_error_in_a_method_is_shown_as_it_is() -> None:
    wrong = make(Mark, __lt__=lambda a, b: a.n % b.n < 1)
    with pytest.raises(ZeroDivisionError):
        check_timestamp(wrong, NUMBERS.map(wrong))


@attrs.frozen(order=True)
class Saturating:
    """A summary that stops at 9: it advances the first times, and composes as it should."""

    n: int

    def results_in(self, time: int, /) -> int | None:
        return Nine(min(time + self.n, 9))

    def followed_by(self, other: Saturating, /) -> Saturating | None:
        return Saturating(self.n + other.n)


class Nine(int):
    """A time up to 9."""

    @classmethod
    def minimum(cls) -> Nine:
        return cls(0)

    @classmethod
    def identity(cls) -> Saturating:
        return Saturating(0)


def test_a_summary_that_stops_at_a_greatest_time_does_not_advance() -> None:
    times = st.builds(Nine, st.integers(0, 9))
    steps = st.builds(Saturating, st.integers(1, 2))
    with pytest.raises(LawViolation, match=r"but p.results_in\(a\) is 9") as error:
        check_summary(TimeKit(Nine, times, steps, st.just(Saturating(0))))
    assert error.value.law == "advancing" and error.value.counterexample["a"] == 9
    check_summary(TimeKit(Nine, times, st.nothing(), steps))  # on other paths it may
    check_summary(TimeKit(int, st.integers(0, 9), st.builds(Step, st.integers(1, 2), st.just(9)), st.just(Step(0))))


class Hour(int):
    """A time that is a whole number of a type of its own."""

    @classmethod
    def minimum(cls) -> Hour:
        return cls(0)

    @classmethod
    def identity(cls) -> Later:
        return Later(0)


class Later(Step):
    """The step between two of them."""

    def results_in(self, time: int, /) -> Hour:
        return Hour(time + self.n)

    def followed_by(self, other: Step, /) -> Later:
        return Later(self.n + other.n)


def test_a_summary_that_derives_from_one_of_ours_obeys_the_laws() -> None:
    check_summary(Hour, st.builds(Later, st.integers(0, 9)), st.builds(Hour, st.integers(0, 9)))


GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)


def run(source: str) -> str:
    """What a program prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, {"__name__": "guide"})
    return printed.getvalue()


@pytest.mark.parametrize(("source", "output"), PROGRAM.findall(GUIDE), ids=SECTION.findall(GUIDE))
def test_a_program_in_the_guide_prints_what_stands_below_it(source: str, output: str) -> None:
    assert run(source) == output


def test_every_program_shows_what_it_prints() -> None:
    assert GUIDE.count("```python\n") == len(PROGRAM.findall(GUIDE)) == len(SECTION.findall(GUIDE))


def test_the_operator_of_the_guide_is_right_once_it_asks_for_its_own_time() -> None:
    source, _ = dict(zip(SECTION.findall(GUIDE), PROGRAM.findall(GUIDE)))["An operator"]
    definitions, _, search = source.rpartition("\n\nprint(")
    assert search.startswith("smallest(")
    names: dict[str, object] = {"__name__": "guide"}
    exec(definitions.replace("frontier.less_than(", "frontier.less_equal("), names)
    is_wrong = names["is_wrong"]
    assert callable(is_wrong)
    for numbers in ([], [0], [0, 0], [1, 2, 3]):
        assert not is_wrong((numbers, []))


def test_every_law_is_named_in_the_guide() -> None:
    names = {law.name for law in axioms.order_laws("abc")}
    names |= {law.name for law in axioms.time_laws(time_domain(int))}
    names |= {law.name for law in axioms.summary_laws(time_domain(int))}
    names |= {law.name for law in axioms.refinement_laws(refinement(int, int))}
    assert [name for name in sorted(names) if name not in GUIDE] == []
