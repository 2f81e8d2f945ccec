"""Python's full collections wait while an operator makes many objects that stay, and come between its activations."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import timely
from tests.differential.epochs import changing
from timely import differential as dd

MANY = 2000
LIMITS = (701, 11, 12)


def has_full_collections() -> bool:
    """Return whether Python has a limit for them: not where it collects in increments, or has one generation."""
    before = gc.get_threshold()
    gc.set_threshold(*LIMITS)
    unchanged = gc.get_threshold() == LIMITS
    gc.set_threshold(*before)
    return unchanged and "free-threading build" not in sys.version


pytestmark = pytest.mark.skipif(not has_full_collections(), reason="Python has no limit for full collections")


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """Limits of the collector that nobody else has set."""
    before = gc.get_threshold()
    gc.set_threshold(*LIMITS)
    yield
    gc.set_threshold(*before)


def run(build: Any, records: list[Any]) -> None:
    with changing(lambda collection: build(collection).output()) as (session, output):
        session.insert_batch(records)
        session.close()
        assert list(output.at(0))


@pytest.mark.parametrize("kind", ["map", "reduce", "join"])
def test_they_wait_while_an_operator_works(kind: str) -> None:
    seen = []

    def look(*_: Any) -> Any:
        seen.append(gc.get_threshold())
        return "found"

    if kind == "map":
        run(lambda numbers: numbers.map(look), list(range(MANY)))
    elif kind == "reduce":
        run(lambda pairs: pairs.reduce(lambda key, values: [(look(), 1)]), [(n % 10, n) for n in range(100)])
    else:
        run(lambda pairs: pairs.join_map(pairs, look), [(n % 10, n) for n in range(100)])
    assert {(young, middle) for young, middle, _ in seen} == {LIMITS[:2]}
    assert min(old for _, _, old in seen) > 1e9
    assert gc.get_threshold() == LIMITS


def test_a_dataflow_without_collections_puts_nothing_off() -> None:
    seen = set()
    timely.example(lambda scope: scope.to_stream(range(MANY)).map(lambda number: seen.add(gc.get_threshold())))
    assert seen == {LIMITS}


def test_the_limits_come_back_after_an_error() -> None:
    with pytest.raises(timely.OperatorError, match="by zero"):
        run(lambda numbers: numbers.map(lambda number: 1 // number), list(range(MANY)))
    assert gc.get_threshold() == LIMITS


def test_limits_that_an_operator_sets_stay() -> None:
    run(lambda numbers: numbers.map(lambda number: gc.set_threshold(900, 9, 9)), list(range(MANY)))
    assert gc.get_threshold() == (900, 9, 9)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        run(lambda numbers: numbers.map(str), list(range(MANY)))
        assert not gc.isenabled()
    finally:
        gc.enable()


class Node:
    """Something that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("workers", [1, 2])
def test_old_garbage_is_found_between_activations(workers: int) -> None:
    """Each epoch drops what an earlier one has made, which is in the oldest generation by then."""
    gc.collect()  # so that Python knows how little there is that is not frozen
    gc.set_threshold(50, 2, 2)
    alive: weakref.WeakSet[Node] = weakref.WeakSet()
    most = []

    def program(worker: timely.Worker) -> None:
        garbage: list[list[Node]] = []

        def make(key: Any, values: Any) -> Any:
            nodes = [Node() for _ in range(100)]
            alive.update(nodes)
            garbage.append(nodes)
            del garbage[:-5]
            return [(len(values), 1)]

        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            output = pairs.reduce(make).output()
        for epoch in range(300):
            session.insert((epoch % 7 * workers + worker.index, epoch))
            session.advance_to(epoch + 1)
            output.wait(epoch)
        most.append(len(alive))

    timely.execute(program, workers=workers)
    assert max(most) < 15_000 * workers
