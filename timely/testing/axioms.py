"""The laws of times, path summaries, refinements and lattices, each by itself; ``timely.testing.laws`` tries them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import attrs

from timely.errors import TimestampError
from timely.order import sort_key
from timely.progress import Lattice, Refinement, TimeDomain

Seen = str | None
"""What came out where a law is broken; None where it holds."""


@attrs.frozen
class Law:
    """One law about its ``variables``; ``broken(*values)`` returns what came out instead, or None where the law holds.

    A letter stands for a time (``a b c``), an inner time (``x y``) or a summary (``p q r``).
    """

    name: str
    statement: str
    variables: str
    broken: Callable[..., Seen]


def order_laws(letters: str, *, strict: bool = True) -> list[Law]:
    """Return the laws of a partial order among values of one kind; ``strict`` adds those of ``<``, ``>=`` and ``>``."""
    a, b, c = tuple(letters)

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
        holds = there == back != unequal and (there or p is not q)
        return None if holds else f"{a} == {b} is {there}, {b} == {a} is {back}, {a} != {b} is {unequal}"

    def hashes(p: Any, q: Any) -> Seen:
        return f"hash({a}) is {hash(p)}, hash({b}) is {hash(q)}" if p == q and hash(p) != hash(q) else None

    laws = [
        Law("equality", f"{a} == {b} exactly if {b} == {a}, and if not {a} != {b}", a + b, equality),
        Law("hash", f"if {a} == {b}, then hash({a}) == hash({b})", a + b, hashes),
        Law("reflexive", f"{a} <= {a}", a, lambda p: None if p <= p else f"{a} <= {a} is False"),
        Law("antisymmetric", f"if {a} <= {b} and {b} <= {a}, then {a} == {b}", a + b, antisymmetric),
        Law("transitive", f"if {a} <= {b} and {b} <= {c}, then {a} <= {c}", letters, transitive),
    ]
    if strict:
        laws.append(Law("strict", f"{a} < {b} exactly if {a} <= {b} and {a} != {b}", a + b, strictly))
        laws.append(Law("converse", f"{a} >= {b} exactly if {b} <= {a}, and so for >", a + b, converse))
    return laws


def time_laws(domain: TimeDomain[Any]) -> list[Law]:
    """Return the laws of what a time type offers besides its order."""
    least = domain.minimum

    def identity(a: Any) -> Seen:
        result = domain.identity.results_in(a)
        return None if _same(result, a) else f"identity().results_in(a) is {result!r}"

    def key(a: Any, b: Any) -> Seen:
        first, second = sort_key(a), sort_key(b)
        if first is None or second is None:
            return None
        fits = first < second if a < b else first < second or second <= first
        return None if fits else f"a's is {first!r}, b's is {second!r}"

    def total(a: Any, b: Any) -> Seen:
        return "neither is" if domain.total and not a <= b and not b <= a else None

    def bound(a: Any, b: Any, c: Any) -> Seen:
        if not callable(getattr(a, "lub", None)):
            return None
        lub = a.lub(b)
        holds = a <= lub and b <= lub and (lub <= c or not (a <= c and b <= c))
        return None if holds else f"a.lub(b) is {lub!r}"

    return [
        Law("minimum", "minimum() <= a", "a", lambda a: None if least <= a else f"minimum() is {least!r}"),
        Law("identity", "identity().results_in(a) == a", "a", identity),
        Law("sort key", "if a < b, then a.sort_key() < b.sort_key(), and any two keys are comparable", "ab", key),
        Law("total", "if is_total(), then a <= b or b <= a", "ab", total),
        Law("least upper bound", "a <= a.lub(b) and b <= a.lub(b), and if a <= c and b <= c, then a.lub(b) <= c", "abc", bound),
    ]


def identity_closed(domain: TimeDomain[Any]) -> Law:
    """Return the law that the identity returns times of the type, and not equal ones of another type."""
    name, identity = "identity().results_in(a)", domain.identity
    return Law("identity", f"{name} is a time of the type", "a", lambda a: _no_time(name, identity.results_in(a), domain))


def summary_laws(domain: TimeDomain[Any]) -> list[Law]:
    """Return the laws of path summaries among themselves and with times."""

    def closed(p: Any, a: Any) -> Seen:
        summary, time = copy(p), copy(a)  # other laws must see the values as they were drawn
        before = repr(summary), repr(time)
        seen = _no_time("p.results_in(a)", summary.results_in(time), domain)
        after = repr(summary), repr(time)
        return seen if before == after else f"after it, p is {after[0]} and a is {after[1]}"

    def in_time(p: Any, a: Any, b: Any) -> Seen:
        return _in_order("p.results_in(a)", p.results_in(a), "p.results_in(b)", p.results_in(b)) if a <= b else None

    def in_summary(p: Any, q: Any, a: Any) -> Seen:
        return _in_order("p.results_in(a)", p.results_in(a), "q.results_in(a)", q.results_in(a)) if p <= q else None

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
        Law("closed", "p.results_in(a) is None or a time of the type, and changes neither p nor a", "pa", closed),
        Law("monotone in time", "if a <= b, then p.results_in(a) <= p.results_in(b)", "pab", in_time),
        Law("monotone in summary", "if p <= q, then p.results_in(a) <= q.results_in(a)", "pqa", in_summary),
        Law("identity", "identity().followed_by(p) == p == p.followed_by(identity())", "pa", identity),
        Law("composition", "p.followed_by(q) does what p and q do in turn", "pqa", composition),
        Law("monotone composition", "if p <= q, then this holds of them followed by r, and after r", "pqra", monotone),
    ]


def advancing_law() -> Law:
    """Return the law of summaries that are declared to advance every time."""

    def advancing(p: Any, a: Any) -> Seen:
        result = p.results_in(a)
        return None if result is None or (a <= result and a != result) else f"p.results_in(a) is {result!r}"

    return Law("advancing", "p.results_in(a) is None or after a, of the advancing summaries", "pa", advancing)


def refinement_laws(into: Refinement[Any, Any]) -> list[Law]:
    """Return the laws of translating between the times of a nested scope and those around it."""
    to_inner, to_outer = into.to_inner, into.to_outer

    def closed(a: Any, x: Any) -> Seen:
        return _no_time("to_inner(a)", to_inner(a), into.inner) or _no_time("to_outer(x)", to_outer(x), into.outer)

    def round_trip(a: Any) -> Seen:
        inner = to_inner(a)
        outer = to_outer(inner)
        return None if outer == a else f"to_inner(a) is {inner!r}, and to_outer of that {outer!r}"

    def inward(a: Any, b: Any) -> Seen:
        return _in_order("to_inner(a)", to_inner(a), "to_inner(b)", to_inner(b)) if a <= b else None

    def outward(x: Any, y: Any) -> Seen:
        return _in_order("to_outer(x)", to_outer(x), "to_outer(y)", to_outer(y)) if x <= y else None

    def down(x: Any) -> Seen:
        outer = to_outer(x)
        again = to_inner(outer)
        return None if again <= x else f"to_outer(x) is {outer!r}, and to_inner of that {again!r}"

    def conservative(p: Any, a: Any) -> Seen:
        summary, through = into.summarize(p), p.results_in(to_inner(a))
        out = None if summary is None else summary.results_in(a)
        done = None if through is None else to_outer(through)
        return None if _at_most(out, done) else f"summarize(p) is {summary!r} and results in {out!r}, inside it was {done!r}"

    return [
        Law("closed", "to_inner(a) is an inner time, to_outer(x) an outer one", "ax", closed),
        Law("round trip", "to_outer(to_inner(a)) == a", "a", round_trip),
        Law("monotone inward", "if a <= b, then to_inner(a) <= to_inner(b)", "ab", inward),
        Law("monotone outward", "if x <= y, then to_outer(x) <= to_outer(y)", "xy", outward),
        Law("rounding down", "to_inner(to_outer(x)) <= x", "x", down),
        Law("conservative", "summarize(p).results_in(a) <= to_outer(p.results_in(to_inner(a)))", "pa", conservative),
    ]


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


def _same(first: Any, second: Any) -> bool:
    """``==`` on results, of which each may be None."""
    return second is None if first is None else second is not None and bool(first == second)


def _at_most(first: Any, second: Any) -> bool:
    """``<=`` on results, of which None is the greatest."""
    return second is None or (first is not None and bool(first <= second))


def _in_order(name: str, first: Any, other: str, second: Any) -> Seen:
    return None if _at_most(first, second) else f"{name} is {first!r}, {other} is {second!r}"


def _no_time(name: str, value: Any, domain: TimeDomain[Any]) -> Seen:
    """What is wrong with a result that should be None or a time of the domain."""
    if value is not None:
        try:
            domain.check(value)
        except TimestampError as error:
            return f"{name} is {value!r}: {error}"
    return None
