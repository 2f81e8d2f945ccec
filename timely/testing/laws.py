"""The laws of times, summaries, refinements and lattices on random values; a violation shows the smallest counterexample.

Sources: Naiad section 2.1 and 2.3; the axioms of Abadi and others, 2013, and of Brun and others, 2021; the 2014 posts on scopes.
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
from timely.progress import Lattice, Refinement, TimeDomain, lattice, refinement, time_domain
from timely.testing.axioms import (
    Law,
    advancing_law,
    identity_closed,
    lattice_laws,
    order_laws,
    refinement_laws,
    summary_laws,
    time_laws,
)
from timely.testing.strategies import TimeKit, time_kit
from timely.testing.strategies import summaries as summaries_of
from timely.testing.strategies import times as times_of

Pools = dict[str, list[Any]]

GROUP = 8
"""Values drawn of each kind at a time. Every law is tried on all triples of them, which finds rare violations."""

FURTHER = 30
"""More groups drawn after a violation, to show it with the simplest values."""


def check_timestamp(time: Any, strategy: st.SearchStrategy[Any] | None = None, *, examples: int | None = None) -> None:
    """Raise a ``LawViolation`` unless the times of type ``time`` obey every law of a timestamp.

    ``time`` is a time type or a ``TimeKit``; :class:`~timely.errors.TimestampError` for anything else. ``strategy`` makes its
    times, by default ``timely.testing.times(time)``. ``examples`` is the number of random groups, by default the profile's.
    The laws: *equality*, *hash*, *reflexive*, *antisymmetric*, *transitive*, *strict*, *converse* (a partial order), *minimum*,
    *identity*, and of the optional methods *sort key*, *total*, *least upper bound*.

    >>> from timely import Product, Step
    >>> check_timestamp(Product[int, int])
    >>> class Countdown(int):
    ...     minimum = classmethod(lambda cls: cls(9))
    ...     identity = classmethod(lambda cls: Step(0))
    >>> check_timestamp(Countdown, st.builds(Countdown, st.integers(0, 9)))
    Traceback (most recent call last):
    timely.errors.LawViolation: Countdown breaks the law "minimum": minimum() <= a
      a = 0
    but minimum() is 9
    """
    domain: TimeDomain[Any] = time_domain(_type(time))
    strategies = {"abc": times_of(time) if strategy is None else strategy}
    _check(domain.name, [*order_laws("abc"), *time_laws(domain)], strategies, examples)
    _check(domain.name, [identity_closed(domain)], strategies, 1)  # last: any time shows it, and it would hide other violations


def check_summary(
    time: Any,
    summaries: st.SearchStrategy[Any] | None = None,
    times: st.SearchStrategy[Any] | None = None,
    *,
    examples: int | None = None,
) -> None:
    """Raise a ``LawViolation`` unless the path summaries of times of type ``time`` obey every law.

    ``summaries`` and ``times`` are strategies, by default ``timely.testing.summaries(time)`` and ``times(time)``. The laws, where
    None is later than every time: those of a partial order; *closed*: ``results_in`` returns a time of the type and changes
    neither operand; *monotone in time* and *in summary*; *identity*, *composition* and *monotone composition*: ``followed_by``
    is the composition of ``results_in``; *advancing*, without ``summaries``: those of the ``TimeKit`` advance every time.

    >>> from timely import Step
    >>> check_summary(int)
    >>> class Hasty(Step):
    ...     followed_by = lambda self, other: self
    >>> check_summary(int, st.builds(Hasty, st.integers(0, 9)))
    Traceback (most recent call last):
    timely.errors.LawViolation: a summary of int breaks the law "composition": p.followed_by(q) does what p and q do in turn
      p = Hasty(0)
      q = Hasty(1)
      a = 0
    but p.followed_by(q) is Hasty(0), which results in 0, in turn in 1
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
    """Raise a ``LawViolation`` unless the times ``inner`` of a nested scope refine the times ``outer`` around it.

    ``summaries`` are those of the inner times. The laws: *closed*, *round trip*, *monotone inward*, *monotone outward*,
    *rounding down*: nothing leaves at a later time than it had, and *conservative*: ``summarize`` never promises a later time
    than a path through the scope takes. :class:`~timely.errors.TimestampError` if ``inner`` has no translation.

    >>> from timely import Product, Step
    >>> check_refinement(int, Product[int, int])
    >>> class Late(int):  # enters at a later time than it leaves
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
    for late in (False, True):  # one time alone shows what rounds up, and would hide other violations
        chosen = [law for law in laws if (law.name == "rounding down") is late]
        _check(f"{into.inner.name} in {into.outer.name}", chosen, pools, examples)


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


def _type(time: Any) -> Any:
    return time.spec if isinstance(time, TimeKit) else time


def _check(subject: str, laws: Sequence[Law], strategies: dict[str, st.SearchStrategy[Any]], examples: int | None) -> None:
    """Raise a ``LawViolation`` with the simplest values that break a law, if random values show one."""
    chosen: list[Law] = []
    tried: dict[str, dict[str, Any]] = {letters: {} for letters in strategies}

    def note(pools: Pools) -> bool:
        for letters, pool in pools.items():
            tried[letters].update((repr(value), value) for value in pool)
        return False

    def breaks(pools: Pools) -> bool:
        note(pools)
        for law in chosen or laws:
            if next(violations(law, pools), None) is not None:
                chosen[:] = [law]
                return True
        return False

    profile = settings(database=None, deadline=None, phases=[Phase.generate, Phase.shrink])
    if examples is not None:
        profile = settings(profile, max_examples=examples)
    groups = st.fixed_dictionaries({letters: st.lists(of, min_size=1, max_size=GROUP) for letters, of in strategies.items()})
    try:
        shrunk = find(groups, breaks, settings=profile)
    except NoSuchExample:
        return
    with suppress(HypothesisException):  # NoSuchExample is expected here, and any other error would hide the law
        find(groups, note, settings=settings(profile, max_examples=FURTHER))
    simplest = {letters: [shown[text] for text in sorted(shown, key=_size)[:GROUP]] for letters, shown in tried.items()}
    raise _violation(subject, chosen[0], {letters: pool + simplest[letters] for letters, pool in shrunk.items()})


def violations(law: Law, pools: Pools) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the values in the pools that break a law, each with what came out instead."""
    choices = [next(pool for letters, pool in pools.items() if letter in letters) for letter in law.variables]
    for values in product(*choices):
        seen = law.broken(*values)
        if seen is not None:
            yield values, seen


def _size(text: str) -> tuple[int, str]:
    return len(text), text


def _violation(subject: str, law: Law, pools: Pools) -> LawViolation:
    """Return the violation whose values print shortest: shrinking one value at a time may end with 2 and 3 instead of 0 and 1."""
    values, seen = min(violations(law, pools), key=lambda violation: [_size(repr(value)) for value in violation[0]])
    counterexample = dict(zip(law.variables, values))
    lines = [f"  {letter} = {value!r}" for letter, value in counterexample.items()]
    message = "\n".join([f'{subject} breaks the law "{law.name}": {law.statement}', *lines, f"but {seen}"])
    return LawViolation(message, law.name, counterexample)
