"""The laws of times, path summaries and refinements, checked on random values, with the smallest counterexample.

Progress tracking is right for every type that obeys these laws, and may be silently wrong for one that does not: a
frontier that passes too early, or one that never passes. The invariant: a check that returns has found no violation in
all cases it tried; one that raises names a law that is broken, the values that break it, shrunk as far as they go, and
what came out. A caller may check a type that the library has never seen, through the protocols alone, and needs to give
a Hypothesis strategy only for types that Hypothesis cannot make by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import attrs
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from timely.errors import LawViolation, TimestampError
from timely.order import sort_key
from timely.progress import Refinement, TimeDomain, refinement, time_domain
from timely.testing.strategies import TimeKit
from timely.testing.strategies import summaries as summaries_of
from timely.testing.strategies import times as times_of

Seen = str | None
Pools = dict[str, list[Any]]

GROUP = 8
"""How many values of a kind are drawn at a time: laws are tried on all triples of them, which finds rare ones."""


@attrs.frozen
class Law:
    """One law: what it says of its ``variables`` (a letter each), and ``broken``, which says what came out instead.

    A letter stands for a time (``a b c``), an inner time (``x y``) or a summary (``p q r``).
    """

    name: str
    statement: str
    variables: str
    broken: Callable[..., Seen]


def check_timestamp(
    time: Any, strategy: st.SearchStrategy[Any] | None = None, *, examples: int | None = None
) -> None:
    """Return if the times of type ``time`` obey every law of a timestamp; raise a ``LawViolation`` if they do not.

    ``time`` is what a dataflow is given (``int``, a class, ``Product[...]``), or a ``TimeKit`` for it. ``strategy`` makes its
    times; by default it is ``timely.testing.times(time)``. ``examples`` is how many random groups of times are tried, by
    default as many as Hypothesis' profile says; every law is tried on every pair and triple of a group. The laws: ``<=`` is
    *reflexive*, *antisymmetric* and *transitive*; *strict*: ``<`` is ``<=`` and ``!=``; *converse*: ``>=`` and ``>`` are
    ``<=`` and ``<`` turned round; *equality* is symmetric and the opposite of ``!=``; *hash*: equal times have equal hashes;
    *minimum* is before all; *identity* changes nothing; *sort key*, if offered, extends the order; *total*: a type that says
    so compares any two times.

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
    laws = [*_order_laws("abc"), *_time_laws(domain)]
    _check(domain.name, laws, {"abc": times_of(time) if strategy is None else strategy}, examples)


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
    times (*reflexive* to *hash*); *closed*: what comes out is a time of the type; *monotone in time*: of two times the
    earlier does not come out later; *monotone in summary*: nor does a time by the lesser of two summaries;
    *identity*: composing with it changes nothing; *composition*: ``followed_by`` does what the two do in turn;
    *monotone composition*: what follows or goes before keeps the order of two summaries. That time advances on a cycle
    is no law of a summary; ``GraphBuilder.build`` looks at that.

    Source: Naiad section 2.3; the axioms of Brun and others, "Verified progress tracking for timely dataflow", 2021.

    >>> from timely import Step
    >>> check_summary(int)
    >>> class Hasty(Step):
    ...     followed_by = lambda self, other: self
    >>> check_summary(int, st.builds(Hasty, st.integers(0, 9)))
    Traceback (most recent call last):
    timely.errors.LawViolation: a summary of int breaks the law "composition": p.followed_by(q) does what p and q do in turn
      p = Step(1)
      q = Step(1)
      a = 0
    but p.followed_by(q) is Step(1), which results in 1, in turn in 2
    """
    domain: TimeDomain[Any] = time_domain(_type(time))
    laws = [*_order_laws("pqr", strict=False), *_summary_laws(domain)]
    pools = {
        "pqr": summaries_of(time) if summaries is None else summaries,
        "abc": times_of(time) if times is None else times,
    }
    _check(f"a summary of {domain.name}", laws, pools, examples)


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

    >>> from timely import Product
    >>> check_refinement(int, Product[int, int])
    """
    into: Refinement[Any, Any] = refinement(_type(outer), _type(inner))
    laws = _refinement_laws(into)
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

    def breaks(pools: Pools) -> bool:
        for law in chosen or laws:
            if next(_violations(law, pools), None) is not None:
                chosen[:] = [law]
                return True
        return False

    profile = settings(database=None, phases=[Phase.generate, Phase.shrink])
    if examples is not None:
        profile = settings(profile, max_examples=examples)
    groups = {letters: st.lists(strategy, min_size=1, max_size=GROUP) for letters, strategy in strategies.items()}
    try:
        smallest = find(st.fixed_dictionaries(groups), breaks, settings=profile)
    except NoSuchExample:
        return
    raise _violation(subject, chosen[0], smallest)


def _violations(law: Law, pools: Pools) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The values in the pools that break the law, and what came out."""
    choices = [next(pool for letters, pool in pools.items() if letter in letters) for letter in law.variables]
    for values in product(*choices):
        seen = law.broken(*values)
        if seen is not None:
            yield values, seen


def _violation(subject: str, law: Law, pools: Pools) -> LawViolation:
    values, seen = next(_violations(law, pools))
    counterexample = dict(zip(law.variables, values))
    lines = [f"  {letter} = {value!r}" for letter, value in counterexample.items()]
    message = "\n".join([f'{subject} breaks the law "{law.name}": {law.statement}', *lines, f"but {seen}"])
    return LawViolation(message, law.name, counterexample)


def _order_laws(letters: str, *, strict: bool = True) -> list[Law]:
    """The laws of a partial order among values of one kind; ``strict`` asks for ``<`` and the like as well."""
    a, b, c = letters[0], letters[1], letters[2]

    def reflexive(p: Any) -> Seen:
        return None if p <= p else f"{a} <= {a} is False"

    def antisymmetric(p: Any, q: Any) -> Seen:
        return f"{a} == {b} is False" if p <= q and q <= p and p != q else None

    def transitive(p: Any, q: Any, r: Any) -> Seen:
        return f"{a} <= {c} is False" if p <= q and q <= r and not p <= r else None

    def strictly(p: Any, q: Any) -> Seen:
        less, equal, below = bool(p < q), bool(p == q), bool(p <= q)
        return None if less == (below and not equal) else f"{a} < {b} is {less}, {a} <= {b} is {below}, {a} == {b} is {equal}"

    def converse(p: Any, q: Any) -> Seen:
        for sign, one, other in ((">=", p >= q, q <= p), (">", p > q, q < p)):
            if bool(one) != bool(other):
                return f"{a} {sign} {b} is {bool(one)}, {b} {sign.replace('>', '<')} {a} is {bool(other)}"
        return None

    def equality(p: Any, q: Any) -> Seen:
        there, back, unequal = bool(p == q), bool(q == p), bool(p != q)
        if there == back != unequal and (there or p is not q):
            return None
        return f"{a} == {b} is {there}, {b} == {a} is {back}, {a} != {b} is {unequal}"

    def hashes(p: Any, q: Any) -> Seen:
        return f"hash({a}) is {hash(p)}, hash({b}) is {hash(q)}" if p == q and hash(p) != hash(q) else None

    laws = [
        Law("equality", f"{a} == {b} exactly if {b} == {a}, and if not {a} != {b}", a + b, equality),
        Law("hash", f"if {a} == {b}, then hash({a}) == hash({b})", a + b, hashes),
        Law("reflexive", f"{a} <= {a}", a, reflexive),
        Law("antisymmetric", f"if {a} <= {b} and {b} <= {a}, then {a} == {b}", a + b, antisymmetric),
        Law("transitive", f"if {a} <= {b} and {b} <= {c}, then {a} <= {c}", letters, transitive),
    ]
    if strict:
        laws.append(Law("strict", f"{a} < {b} exactly if {a} <= {b} and {a} != {b}", a + b, strictly))
        laws.append(Law("converse", f"{a} >= {b} exactly if {b} <= {a}, and so for >", a + b, converse))
    return laws


def _time_laws(domain: TimeDomain[Any]) -> list[Law]:
    """The laws of what a time type offers besides its order."""

    def minimum(a: Any) -> Seen:
        return None if domain.minimum <= a else f"minimum() is {domain.minimum!r}"

    def identity(a: Any) -> Seen:
        result = domain.identity.results_in(a)
        return None if _same(result, a) else f"identity().results_in(a) is {result!r}"

    def key(a: Any, b: Any) -> Seen:
        first, second = sort_key(a), sort_key(b)
        if first is None or second is None:
            return None
        return f"a's is {first!r}, b's is {second!r}" if a < b and not first < second else None

    def total(a: Any, b: Any) -> Seen:
        return "neither is" if domain.total and not a <= b and not b <= a else None

    return [
        Law("minimum", "minimum() <= a", "a", minimum),
        Law("identity", "identity().results_in(a) == a", "a", identity),
        Law("sort key", "if a < b, then a.sort_key() < b.sort_key()", "ab", key),
        Law("total", "if is_total(), then a <= b or b <= a", "ab", total),
    ]


def _summary_laws(domain: TimeDomain[Any]) -> list[Law]:
    """The laws of path summaries among themselves and with times."""

    def closed(p: Any, a: Any) -> Seen:
        return _no_time("p.results_in(a)", p.results_in(a), domain)

    def in_time(p: Any, a: Any, b: Any) -> Seen:
        if not a <= b or _at_most(p.results_in(a), p.results_in(b)):
            return None
        return f"p.results_in(a) is {p.results_in(a)!r}, p.results_in(b) is {p.results_in(b)!r}"

    def in_summary(p: Any, q: Any, a: Any) -> Seen:
        if not p <= q or _at_most(p.results_in(a), q.results_in(a)):
            return None
        return f"p.results_in(a) is {p.results_in(a)!r}, q.results_in(a) is {q.results_in(a)!r}"

    def identity(p: Any, a: Any) -> Seen:
        neutral: Any = domain.identity
        after, before = neutral.followed_by(p), p.followed_by(neutral)
        for name, whole in (("identity().followed_by(p)", after), ("p.followed_by(identity())", before)):
            if not (p.results_in(a) is None if whole is None else whole == p):
                return f"{name} is {whole!r}"
        return None

    def composition(p: Any, q: Any, a: Any) -> Seen:
        whole, half = p.followed_by(q), p.results_in(a)
        turns = None if half is None else q.results_in(half)
        once = None if whole is None else whole.results_in(a)
        return None if _same(once, turns) else f"p.followed_by(q) is {whole!r}, which results in {once!r}, in turn in {turns!r}"

    def monotone(p: Any, q: Any, r: Any, a: Any) -> Seen:
        if not p <= q:
            return None
        for name, less, more in (
            ("followed by r", p.followed_by(r), q.followed_by(r)),
            ("after r", r.followed_by(p), r.followed_by(q)),
        ):
            blocked = less is None and more is not None and more.results_in(a) is None
            if not blocked and not _at_most(less, more):
                return f"p {name} is {less!r}, q {name} is {more!r}"
        return None

    return [
        Law("closed", "p.results_in(a) is None or a time of the type", "pa", closed),
        Law("monotone in time", "if a <= b, then p.results_in(a) <= p.results_in(b)", "pab", in_time),
        Law("monotone in summary", "if p <= q, then p.results_in(a) <= q.results_in(a)", "pqa", in_summary),
        Law("identity", "identity().followed_by(p) == p == p.followed_by(identity())", "pa", identity),
        Law("composition", "p.followed_by(q) does what p and q do in turn", "pqa", composition),
        Law("monotone composition", "if p <= q, then this holds of them followed by r, and after r", "pqra", monotone),
    ]


def _refinement_laws(into: Refinement[Any, Any]) -> list[Law]:
    """The laws of translating between the times of a nested scope and those around it."""

    def closed(a: Any, x: Any) -> Seen:
        inward = _no_time("to_inner(a)", into.to_inner(a), into.inner)
        return inward or _no_time("to_outer(x)", into.to_outer(x), into.outer)

    def round_trip(a: Any) -> Seen:
        inner = into.to_inner(a)
        outer = into.to_outer(inner)
        return None if outer == a else f"to_inner(a) is {inner!r}, and to_outer of that {outer!r}"

    def inward(a: Any, b: Any) -> Seen:
        first, second = into.to_inner(a), into.to_inner(b)
        return f"to_inner(a) is {first!r}, to_inner(b) is {second!r}" if a <= b and not first <= second else None

    def outward(x: Any, y: Any) -> Seen:
        first, second = into.to_outer(x), into.to_outer(y)
        return f"to_outer(x) is {first!r}, to_outer(y) is {second!r}" if x <= y and not first <= second else None

    def conservative(p: Any, a: Any) -> Seen:
        summary, through = into.summarize(p), p.results_in(into.to_inner(a))
        said = None if summary is None else summary.results_in(a)
        done = None if through is None else into.to_outer(through)
        return None if _at_most(said, done) else f"summarize(p) is {summary!r} and results in {said!r}, inside it was {done!r}"

    return [
        Law("closed", "to_inner(a) is an inner time, to_outer(x) an outer one", "ax", closed),
        Law("round trip", "to_outer(to_inner(a)) == a", "a", round_trip),
        Law("monotone inward", "if a <= b, then to_inner(a) <= to_inner(b)", "ab", inward),
        Law("monotone outward", "if x <= y, then to_outer(x) <= to_outer(y)", "xy", outward),
        Law("conservative", "summarize(p).results_in(a) <= to_outer(p.results_in(to_inner(a)))", "pa", conservative),
    ]


def _same(first: Any, second: Any) -> bool:
    """``==`` on results, of which each may be None."""
    return second is None if first is None else second is not None and bool(first == second)


def _at_most(first: Any, second: Any) -> bool:
    """``<=`` on results, of which None is the greatest."""
    return second is None or (first is not None and bool(first <= second))


def _no_time(name: str, value: Any, domain: TimeDomain[Any]) -> Seen:
    """What is wrong with a result that should be None or a time of the domain."""
    if value is not None:
        try:
            domain.check(value)
        except TimestampError as error:
            return f"{name} is {value!r}: {error}"
    return None
