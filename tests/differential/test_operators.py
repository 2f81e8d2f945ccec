"""Every operator against a function of dicts, and random programs with loops: random updates, times and orders of arrival."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import oracles
from tests.differential.oracles import reduced
from tests.support.collection_programs import CollectionProgram as P
from tests.support.collection_programs import programs
from timely import Product
from timely.testing.differential import Case, cases, check_changes, check_operator, few_times, run

PAIR: Any = Product[int, int]
DEEP: Any = Product[Product[int, int], int]

ONE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "map": (lambda c: c.map(lambda p: p[1]), lambda n: oracles.mapped(lambda p: p[1], n)),
    "filter": (lambda c: c.filter(lambda p: p[1] % 2), lambda n: oracles.filtered(lambda p: p[1] % 2, n)),
    "negate": (lambda c: c.negate(), oracles.negated),
    "consolidate": (lambda c: c.consolidate(), lambda n: n),
    "distinct": (lambda c: c.distinct(), oracles.distinct),
    "count": (lambda c: c.count(), oracles.counted),
    "count_by_key": (lambda c: c.count_by_key(), lambda n: reduced(oracles.number, n)),
    "sum_by_key": (lambda c: c.sum_by_key(), lambda n: reduced(oracles.total, n)),
    "min_by_key": (lambda c: c.min_by_key(), lambda n: reduced(oracles.least, n)),
    "max_by_key": (lambda c: c.max_by_key(), lambda n: reduced(oracles.most, n)),
    "top_k": (lambda c: c.top_k(2), lambda n: reduced(oracles.first(2), n)),
    "reduce": (lambda c: c.reduce(oracles.mixed), lambda n: reduced(oracles.mixed, n)),
    "self join": (lambda c: c.join(c), lambda n: oracles.joined(n, n)),
    "shared": (
        lambda c: shared(c),
        lambda n: oracles.summed(reduced(oracles.mixed, n), oracles.joined(n, reduced(oracles.least, n), take)),
    ),
}


def take(key: Any, left: Any, right: Any) -> Any:
    return key, left + right


def shared(pairs: Any) -> Any:
    arranged = pairs.arrange_by_key().as_collection()
    return arranged.reduce(oracles.mixed).concat(arranged.join_map(arranged.min_by_key(), take))


TWO: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "join": (lambda a, b: a.join(b), oracles.joined),
    "join_map": (lambda a, b: a.join_map(b, take), lambda n, m: oracles.joined(n, m, take)),
    "semijoin": (lambda a, b: a.semijoin(b.map(second)), lambda n, m: oracles.semijoined(n, oracles.mapped(second, m))),
    "antijoin": (lambda a, b: a.antijoin(b.map(second)), lambda n, m: oracles.antijoined(n, oracles.mapped(second, m))),
    "concat": (lambda a, b: a.concat(b, a), lambda n, m: oracles.summed(n, m, n)),
    "minus": (lambda a, b: a.minus(b), lambda n, m: oracles.summed(n, oracles.negated(m))),
}


def second(pair: Any) -> Any:
    return pair[1]


@pytest.mark.parametrize("time", [int, PAIR], ids=["epochs", "pairs"])
@pytest.mark.parametrize("name", ONE)
def test_an_operator_of_one_collection(name: str, time: Any) -> None:
    build, oracle = ONE[name]
    check_operator(build, oracle, time=time, examples=15)


@pytest.mark.parametrize("time", [int, PAIR], ids=["epochs", "pairs"])
@pytest.mark.parametrize("name", TWO)
def test_an_operator_of_two_collections(name: str, time: Any) -> None:
    build, oracle = TWO[name]
    check_operator(build, oracle, inputs=2, time=time, examples=15)


@pytest.mark.parametrize("name", ["reduce", "shared", "min_by_key"])
def test_an_operator_at_times_of_three_coordinates(name: str) -> None:
    build, oracle = ONE[name]
    check_operator(build, oracle, time=DEEP, examples=15)


SMALL_TIMES = st.builds(Product, st.integers(0, 5), st.integers(0, 5))
TWELVE_KEYS = st.tuples(st.integers(0, 11), st.integers(0, 7))


@pytest.mark.parametrize("name", ["count_by_key", "sum_by_key", "min_by_key"])
def test_DD_F7_aggregates_at_partially_ordered_times(name: str) -> None:
    build, oracle = ONE[name]
    diffs = st.sampled_from([1, -1])
    check_operator(build, oracle, times=SMALL_TIMES, records=TWELVE_KEYS, diffs=diffs, size=20, examples=20)


def drawn_time(random: Random, size: int) -> Any:
    return Product(random.randrange(size), random.randrange(size))


@pytest.mark.parametrize("name", ["count_by_key", "sum_by_key", "min_by_key", "max_by_key", "top_k"])
@pytest.mark.parametrize("seed", range(6))
def test_DD_F7_aggregates_of_large_groups(name: str, seed: int) -> None:
    build, oracle = ONE[name]
    random = Random(seed)
    size = 4 if seed % 2 else 2
    changes = [
        ((random.randrange(2), random.randrange(300)), drawn_time(random, size), random.choice([1, 1, -1])) for _ in range(400)
    ]
    changes += [(record, Product(when.outer + 1, when.inner), -diff) for record, when, diff in changes[:150]]
    result = run(build, changes, time=PAIR, seed=seed, compact=seed % 3 == 0, workers=1 + seed % 2)
    check_changes(result, [changes], oracle, PAIR)


@pytest.mark.parametrize("name", ["sum_by_key", "min_by_key", "top_k"])
def test_DD_F7_aggregates_of_large_groups_in_a_loop(name: str) -> None:
    build, oracle = ONE[name]
    random = Random(7)
    changes = [((0, random.randrange(60)), time, 1) for time in range(6) for _ in range(12)]
    changes += [(record, time + 1, -1) for record, time, _ in changes[:50]]

    def body(scope: Any, pairs: Any) -> Any:
        return build(pairs).map(lambda pair: (0, (pair[1] * 7 + 1) % 60)).concat(pairs).distinct()

    def looped(counts: Any) -> Any:
        held = oracles.distinct(counts)
        while True:
            more = oracles.mapped(lambda pair: (0, (pair[1] * 7 + 1) % 60), oracle(held))
            again = oracles.distinct(oracles.summed(more, held))
            if again == held:
                return held
            held = again

    for one_by_one in (False, True):
        result = run(lambda c: c.distinct().iterate(body), changes, one_by_one=one_by_one)
        check_changes(result, [changes], looped)


@pytest.mark.parametrize("name", ["count_by_key", "sum_by_key", "min_by_key", "max_by_key", "top_k", "distinct"])
def test_DD_F10_aggregates_equal_general_reductions(name: str) -> None:
    function = {
        "count_by_key": oracles.number,
        "sum_by_key": oracles.total,
        "min_by_key": oracles.least,
        "max_by_key": oracles.most,
        "top_k": oracles.first(2),
    }
    build, _ = ONE[name]

    def difference(pairs: Any) -> Any:
        if name == "distinct":
            general = pairs.map(lambda p: (p, None)).reduce(lambda k, v: [(None, 1)] if v[0][1] > 0 else []).map(lambda p: p[0])
        else:
            general = pairs.reduce(function[name])
        return build(pairs).minus(general)

    check_operator(difference, lambda counts: {}, time=int, examples=20)


def check(program: P, case: Case, time: Any) -> None:
    check_changes(case.run(program.build, time), case.inputs, lambda *held: program.evaluate(held), time)


@settings(max_examples=2 * settings().max_examples)
@given(programs(), cases(2, few_times(int), size=6))
def test_programs_at_epochs(program: P, case: Case) -> None:
    check(program, case, int)


@settings(max_examples=2 * settings().max_examples)
@given(programs(), cases(2, few_times(PAIR), size=5))
def test_programs_at_partially_ordered_times(program: P, case: Case) -> None:
    check(program, case, PAIR)


VARIABLE = P("variable")
INPUT, OTHER = P("input"), P("input", (), 1)


@pytest.mark.parametrize("group", range(7))
@settings(max_examples=3)
@given(cases(2, few_times(int), size=4))
def test_groups_three_loops_deep(group: int, case: Case) -> None:
    innermost = P("group", (P("join", (VARIABLE, P("variable", (), 2)), 1),), group)
    middle = P("rounds", (P("map", (VARIABLE,), 1), P("concat", (innermost, OTHER))), 1)
    deepest = P("rounds", (VARIABLE, P("concat", (middle, P("negate", (INPUT,))))), 1)
    check(P("rounds", (INPUT, deepest), 1), case, int)
