"""The laws of times, path summaries and refinements, checked on random values, with the smallest counterexample.

Progress tracking is right for every type that obeys these laws, and may be silently wrong for one that does not: a
frontier that passes too early, or one that never passes. The invariant: a check that returns has found no violation in
all cases it tried; one that raises names a law that is broken, the values that break it, as small as they were found, and
what came out. A caller may check a type that the library has never seen, through the protocols alone, and needs to give
a Hypothesis strategy only for types that Hypothesis cannot make by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, NoSuchExample

from timely.errors import LawViolation
from timely.progress import Refinement, TimeDomain, refinement, time_domain
from timely.testing.axioms import Law, advancing_law, identity_closed, order_laws, refinement_laws, summary_laws, time_laws
from timely.testing.kits import TimeKit, time_kit
from timely.testing.kits import summaries as summaries_of
from timely.testing.kits import times as times_of

Pools = dict[str, list[Any]]

GROUP = 8
"""How many values of a kind are drawn at a time: laws are tried on all triples of them, which finds rare ones."""

FURTHER = 30
"""How many more groups are drawn where a law is broken, to tell it by values that are as simple as can be."""


def check_timestamp(
    time: Any, strategy: st.SearchStrategy[Any] | None = None, *, examples: int | None = None
) -> None:
    """Return if the times of type ``time`` obey every law of a timestamp; raise a ``LawViolation`` if they do not.

    ``time`` is what a dataflow is given (``int``, a class, ``Product[...]``), or a ``TimeKit`` for it. ``strategy`` makes its
    times; by default it is ``timely.testing.times(time)``. ``examples`` is how many random groups of times are tried, by
    default as many as Hypothesis' profile says; every law is tried on every pair and triple of a group. The laws: ``<=`` is
    *reflexive*, *antisymmetric* and *transitive*; *strict*: ``<`` is ``<=`` and ``!=``; *converse*: ``>=`` and ``>`` are
    ``<=`` and ``<`` turned round; *equality* is symmetric and the opposite of ``!=``; *hash*: equal times have equal hashes;
    *minimum* is before all; *identity* changes nothing, and gives a time of the type; *sort key*, if offered, extends the
    order to a total one; *total*: a type that says so compares any two times; *least upper bound*, if offered: ``lub`` is
    the earliest time at or after both.

    A :class:`~timely.errors.TimestampError` for what is no type of times at all. Source: Naiad section 2.1; the axioms of
    Abadi and others, "Formal analysis of a distributed algorithm for tracking progress", 2013.

    >>> from timely import Product
    >>> check_timestamp(Product[int, int])
    >>> from typing import NamedTuple
    >>> from timely import ProductSummary, Step
    >>> class Pair(NamedTuple):  # its < is that of tuples, which is another order than its <=
    ...     left: int
    ...     right: int
    ...     __le__ = lambda self, other: self.left <= other.left and self.right <= other.right
    ...     minimum = classmethod(lambda cls: cls(0, 0))
    ...     identity = classmethod(lambda cls: ProductSummary(Step(0), Step(0)))
    >>> check_timestamp(Pair, st.builds(Pair, st.integers(0, 9), st.integers(0, 9)))
    Traceback (most recent call last):
    timely.errors.LawViolation: Pair breaks the law "strict": a < b exactly if a <= b and a != b
      a = Pair(left=0, right=1)
      b = Pair(left=1, right=0)
    but a < b is True, a <= b is False, a == b is False
    """
    domain: TimeDomain[Any] = time_domain(_type(time))
    strategies = {"abc": times_of(time) if strategy is None else strategy}
    _check(domain.name, [*order_laws("abc"), *time_laws(domain)], strategies, examples)
    _check(domain.name, [identity_closed(domain)], strategies, 1)  # at last: one time shows it, and would hide what takes several


def check_summary(
    time: Any,
    summaries: st.SearchStrategy[Any] | None = None,
    times: st.SearchStrategy[Any] | None = None,
    *,
    examples: int | None = None,
) -> None:
    """Return if path summaries of times of type ``time`` obey every law; raise a ``LawViolation`` if they do not.

    ``summaries`` and ``times`` make them; by default they are ``timely.testing.summaries(time)`` and ``times(time)``. The
    laws, with None ("nothing gets through") as the greatest result of all: ``<=`` on summaries is a partial order as for
    times (*reflexive* to *hash*); *closed*: what comes out is a time of the type, and what went in
    is as it was; *monotone in time*: of two times the earlier does not come out later;
    *monotone in summary*: nor does a time by the lesser of two summaries;
    *identity*: composing with it changes nothing; *composition*: ``followed_by`` does what the two do in turn;
    *monotone composition*: what follows or goes before keeps the order of two summaries. Where no ``summaries`` are given,
    *advancing*: those that the ``TimeKit`` says advance do so at every time. Other summaries need not, and that time advances
    on each cycle is what ``GraphBuilder.build`` looks at; but it tries two times only, and not each, which a summary that
    stops at a greatest time gets by.

    Source: Naiad section 2.3; the axioms of Brun and others, "Verified progress tracking for timely dataflow", 2021.

    >>> from timely import Step
    >>> check_summary(int)
    >>> class Hasty(Step):
    ...     followed_by = lambda self, other: self
    >>> check_summary(int, st.builds(Hasty, st.integers(0, 9)))
    Traceback (most recent call last):
    timely.errors.LawViolation: a summary of int breaks the law "composition": p.followed_by(q) does what p and q do in turn
      p = Step(0)
      q = Step(1)
      a = 0
    but p.followed_by(q) is Step(0), which results in 0, in turn in 1
    """
    domain: TimeDomain[Any] = time_domain(_type(time))
    laws = [*order_laws("pqr", strict=False), *summary_laws(domain)]
    pools = {
        "pqr": summaries_of(time) if summaries is None else summaries,
        "abc": times_of(time) if times is None else times,
    }
    _check(f"a summary of {domain.name}", laws, pools, examples)
    advancing = st.nothing() if summaries is not None else time_kit(time).advancing
    if not advancing.is_empty:
        _check(f"a summary of {domain.name}", [advancing_law()], {**pools, "pqr": advancing}, examples)


def check_refinement(
    outer: Any,
    inner: Any,
    summaries: st.SearchStrategy[Any] | None = None,
    *,
    outer_times: st.SearchStrategy[Any] | None = None,
    inner_times: st.SearchStrategy[Any] | None = None,
    examples: int | None = None,
) -> None:
    """Return if the times ``inner`` of a nested scope refine the times ``outer`` around it; raise a ``LawViolation`` if not.

    ``summaries`` are those of the inner times. The laws: *closed*: translating gives times of the other type; *round trip*:
    what enters and leaves at once is back at its time; *monotone inward* and *monotone outward*; *conservative*: what
    ``summarize`` says outside of a path through the scope is never later than what happens on it.

    A :class:`~timely.errors.TimestampError` for types of which neither is a refinement of the other. Source: the 2014
    posts on scopes; that what is said outside is never later is what makes a nested scope safe to believe.

    >>> from timely import Product, Step
    >>> check_refinement(int, Product[int, int])
    >>> class Late(int):  # enters an hour later than it leaves
    ...     minimum = classmethod(lambda cls: cls(0))
    ...     identity = classmethod(lambda cls: Step(0))
    ...     to_inner = classmethod(lambda cls, outer: cls(outer + 1))
    ...     to_outer = lambda self: int(self)
    ...     summarize = classmethod(lambda cls, step: step)
    >>> check_refinement(int, Late, st.builds(Step, st.integers(0, 9)), inner_times=st.builds(Late, st.integers(0, 9)))
    Traceback (most recent call last):
    timely.errors.LawViolation: Late in int breaks the law "round trip": to_outer(to_inner(a)) == a
      a = 0
    but to_inner(a) is 1, and to_outer of that 1
    """
    into: Refinement[Any, Any] = refinement(_type(outer), _type(inner))
    laws = refinement_laws(into)
    pools = {
        "abc": times_of(outer) if outer_times is None else outer_times,
        "xy": times_of(inner) if inner_times is None else inner_times,
        "pqr": summaries_of(inner) if summaries is None else summaries,
    }
    _check(f"{into.inner.name} in {into.outer.name}", laws, pools, examples)


def _type(time: Any) -> Any:
    return time.spec if isinstance(time, TimeKit) else time


def _check(subject: str, laws: Sequence[Law], strategies: dict[str, st.SearchStrategy[Any]], examples: int | None) -> None:
    """Look for groups of values that break any of the laws, and shrink the first ones found for the law they break."""
    chosen: list[Law] = []
    tried: dict[str, dict[str, Any]] = {letters: {} for letters in strategies}

    def note(pools: Pools) -> bool:
        for letters, pool in pools.items():
            tried[letters].update((repr(value), value) for value in pool)
        return False

    def breaks(pools: Pools) -> bool:
        note(pools)
        for law in chosen or laws:
            if next(_violations(law, pools), None) is not None:
                chosen[:] = [law]
                return True
        return False

    profile = settings(database=None, phases=[Phase.generate, Phase.shrink])
    if examples is not None:
        profile = settings(profile, max_examples=examples)
    groups = st.fixed_dictionaries({letters: st.lists(of, min_size=1, max_size=GROUP) for letters, of in strategies.items()})
    try:
        shrunk = find(groups, breaks, settings=profile)
    except NoSuchExample:
        return
    with suppress(HypothesisException):  # that there is none is as it should be, and another complaint would hide the law
        find(groups, note, settings=settings(profile, max_examples=FURTHER))
    simplest = {letters: [shown[text] for text in sorted(shown, key=_size)[:GROUP]] for letters, shown in tried.items()}
    raise _violation(subject, chosen[0], {letters: pool + simplest[letters] for letters, pool in shrunk.items()})


def _violations(law: Law, pools: Pools) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The values in the pools that break the law, and what came out."""
    choices = [next(pool for letters, pool in pools.items() if letter in letters) for letter in law.variables]
    for values in product(*choices):
        seen = law.broken(*values)
        if seen is not None:
            yield values, seen


def _size(text: str) -> tuple[int, str]:
    """Order what is printed by its length first."""
    return len(text), text


def _violation(subject: str, law: Law, pools: Pools) -> LawViolation:
    """The violation by the values that are printed in the fewest letters.

    The pools have what the search ended with, and small values that it met on its way: shrinking makes one value smaller at a
    time, so that it ends with 2 and 3 where it takes two neighbours, and 0 and 1 are.
    """
    values, seen = min(_violations(law, pools), key=lambda violation: [_size(repr(value)) for value in violation[0]])
    counterexample = dict(zip(law.variables, values))
    lines = [f"  {letter} = {value!r}" for letter, value in counterexample.items()]
    message = "\n".join([f'{subject} breaks the law "{law.name}": {law.statement}', *lines, f"but {seen}"])
    return LawViolation(message, law.name, counterexample)
