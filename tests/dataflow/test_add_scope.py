"""Scopes of one's own in a dataflow: at any depth, on several workers, with inputs from outside.

White box: ``execute`` makes the transports itself, and the one here counts how often it waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.dataflow.epochs import merged, simulated
from tests.dataflow.own_scopes import Batches, Doubler, Own, Stubborn, Total
from timely import (
    ChangeBatch,
    Exchange,
    Product,
    ProductSummary,
    StalledError,
    Step,
)
from timely.execution.threads import first_failure, run_worker
from timely.testing import simulate
from timely.worker import PeerTransport, Worker
from timely.worker.transports import Inbox


def at_depth(scope: Any, stream: Any, kinds: str, place: Callable[[Any, Any, Any], Any], stay: Any = None) -> Any:
    """Carry ``stream`` into one more scope for each letter (a region or a loop), and out again; ``place`` it at the bottom."""
    stay = Step(0) if stay is None else stay
    if not kinds:
        return place(scope, stream, stay)
    if kinds[0] == "r":
        with scope.region() as inner:
            return at_depth(inner, stream.enter(inner), kinds[1:], place, stay).leave()
    with scope.iterative() as inner:
        return at_depth(inner, stream.enter(inner), kinds[1:], place, ProductSummary(stay, Step(0))).leave()


EPOCHS = st.lists(st.lists(st.integers(0, 20), max_size=5), min_size=1, max_size=4)
DEPTHS = st.text("rl", max_size=3)
WORKERS = st.integers(1, 3)
SEEDS = st.integers(0, 1000)


@given(epochs=EPOCHS, kinds=DEPTHS, workers=WORKERS, seed=SEEDS)
def test_a_scope_that_waits_for_its_frontier(epochs: list[list[int]], kinds: str, workers: int, seed: int) -> None:
    def place(inner: Any, stream: Any, stay: Any) -> Any:
        key = Exchange(lambda x: 0)
        return inner.add_scope(Total(2, stay), [(stream, key), (stream.map(lambda x: 100 * x), key)])[0]

    sums = simulated(lambda s, t: at_depth(s, t, kinds, place), epochs, workers, seed)
    assert sums == {n: [101 * sum(records)] for n, records in enumerate(epochs) if records}


@given(epochs=EPOCHS, workers=WORKERS, seed=SEEDS)
def test_a_scope_in_a_loop(epochs: list[list[int]], workers: int, seed: int) -> None:
    def build(scope: Any, stream: Any) -> Any:
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            both = stream.filter(lambda x: x > 0).enter(loop).concat(again)
            doubled = loop.add_scope(Doubler(1, ProductSummary(Step(0), Step(0))), [(both, Exchange(lambda x: x))])[0]
            small, large = doubled.branch(lambda x: x >= 100)
            small.connect_loop(handle)
            return large.leave()

    def expected(x: int) -> int:
        while x < 100:
            x *= 2
        return x

    positive = [[x for x in records if x > 0] for records in epochs]
    assert simulated(build, epochs, workers, seed) == {
        n: sorted(map(expected, records)) for n, records in enumerate(positive) if records
    }


# -- staying alive -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", ["", "r", "lr"])
@pytest.mark.parametrize("pulls", [1, 2, 7])
def test_true_keeps_the_computation_alive(pulls: int, kinds: str) -> None:
    def place(scope: Any, stream: Any, stay: Any) -> Any:
        assert scope.add_scope(stubborn) == []
        return stream

    worker, stubborn = timely.Worker(), Stubborn(pulls)
    with worker.dataflow(name="kept") as scope:
        probe = at_depth(scope, scope.empty(), kinds, place).probe()
    steps = 0
    while worker.step():
        steps += 1
        assert worker.dataflows == ["kept"]
        assert stubborn.left > 0 or not probe.done() or steps < 4
    assert stubborn.left == 0
    assert probe.done()


def test_true_keeps_run_going_on_every_worker_for_itself() -> None:
    def program(worker: timely.Worker) -> int:
        stubborn = Stubborn(5 * (worker.index + 1))
        with worker.dataflow() as scope:
            scope.add_scope(stubborn)
        worker.run()
        return stubborn.left

    assert timely.execute(program, workers=3) == [0, 0, 0]
    assert simulate(program, workers=3, seed=4).results == [0, 0, 0]


class Outside(Own):
    """A source fed from outside: ``put`` by any thread, or ``end``; it says that it is busy as long as somebody may."""

    patient = True

    def __init__(self, stay: Any = None, start: Any = 0, later: Callable[[Any], Any] = lambda time: time + 1) -> None:
        super().__init__(0, stay, [start])
        self.came: deque[list[Any] | None] = deque()
        self.ended = False
        self.time: Any = start
        self.later = later

    def put(self, batch: list[Any] | None) -> None:
        self.came.append(batch)
        self.activate()

    def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
        while self.came:
            batch = self.came.popleft()
            held.update(self.time, -1)
            if batch is None:
                self.ended = True
            else:
                self.send(self.time, batch, produced)
                self.time = self.later(self.time)
                held.update(self.time, 1)
        return not self.ended


def from_outside(kinds: str, batches: list[list[int]]) -> Callable[[timely.Worker], Any]:
    """A program with a source at some depth, fed by a thread on each worker, one batch after the last has come out."""

    def program(worker: timely.Worker) -> Any:
        came_out = threading.Semaphore(0)
        sources: list[Outside] = []

        def place(scope: Any, stream: Any, stay: Any) -> Any:
            looped = isinstance(stay, ProductSummary)
            later = (lambda time: Product(time.outer + 1, 0)) if looped else (lambda time: time + 1)
            sources.append(Outside(stay, Product(0, 0) if looped else 0, later))
            return scope.add_scope(sources[0])[0]

        def supply() -> None:
            for batch in batches:
                sources[0].put([x + worker.index for x in batch])
                came_out.acquire()
            sources[0].put(None)

        with worker.dataflow() as scope:
            made = at_depth(scope, scope.empty(), kinds, place)
            seen = made.inspect_batch(lambda time, batch: came_out.release()).exchange(lambda x: x).capture()
        thread = threading.Thread(target=supply)
        thread.start()
        worker.run()
        thread.join()
        assert sources[0].pulls <= 3 * len(batches) + 6  # it is not asked again and again while it waits
        return seen.extract()

    return program


@pytest.mark.parametrize("kinds", ["", "r", "rl"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_records_from_another_thread(workers: int, kinds: str) -> None:
    results = timely.execute(from_outside(kinds, [[10], [20, 30], [40]]), workers=workers)
    expected = {0: [10], 1: [20, 30], 2: [40]}
    assert merged(results) == {n: sorted(x + worker for x in batch for worker in range(workers)) for n, batch in expected.items()}


def test_a_worker_that_waits_for_one_source_is_woken_for_each() -> None:
    worker, sources = timely.Worker(), [Outside(), Outside()]
    with worker.dataflow() as scope:
        one, two = (scope.add_scope(source)[0] for source in sources)
        seen = one.concat(two).capture()
        probe = one.probe()

    def supply() -> None:
        for n in range(20):
            sources[n % 2].put([n])
        for source in sources:
            source.put(None)

    thread = threading.Thread(target=supply)
    thread.start()
    worker.step_while(lambda: probe.less_than(5))
    worker.run()
    thread.join()
    assert seen.extract() == [(n, [2 * n, 2 * n + 1]) for n in range(10)]
    for source in sources:
        source.activate()  # which nobody needs any more
    assert not worker.step()


def test_a_source_that_asks_itself_to_be_pulled() -> None:
    class Poll(Outside):
        def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
            if self.pulls <= 4:
                self.put([self.pulls] if self.pulls < 4 else None)
            return super().work(held, consumed, produced)

    assert timely.example(lambda scope: scope.add_scope(Poll())[0]) == [(0, [1]), (1, [2]), (2, [3])]


def test_a_scope_that_holds_something_and_is_not_busy_has_stalled() -> None:
    with pytest.raises(StalledError, match=r"a capability of /example/held#0 at 3"):
        timely.example(lambda scope: scope.add_scope(Own(0, held=[3]), name="held")[0])


class Counting(PeerTransport):
    """A transport with an event for when every worker has waited a few times in vain."""

    waits: ClassVar[dict[int, int]]
    enough: ClassVar[threading.Event]

    def wait(self, timeout: float | None = None) -> None:
        super().wait(0.001)
        self.waits[self.index] = self.waits.get(self.index, 0) + 1
        if all(self.waits.get(index, 0) > 5 for index in range(self.peers)):
            self.enough.set()


@pytest.mark.parametrize("busy", [True, False])
def test_peers_wait_as_long_as_an_activation_is_expected(busy: bool) -> None:
    class Slow(Outside):
        def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
            return super().work(held, consumed, produced) and busy

    class Transport(Counting):
        waits: ClassVar[dict[int, int]] = {}
        enough = threading.Event()

    def program(worker: timely.Worker) -> Any:
        source = Slow()
        ended = threading.Event()
        with worker.dataflow() as scope:
            seen = scope.add_scope(source, name="slow")[0].exchange(lambda x: x).capture()

        def supply() -> None:
            (Transport.enough if busy else ended).wait(600)
            source.put([worker.index])
            source.put(None)

        thread = threading.Thread(target=supply)
        thread.start()
        try:
            worker.run()
        finally:
            ended.set()
            thread.join()
        return seen.extract()

    inboxes = {index: Inbox() for index in range(2)}
    workers = [Worker(Transport(index, inboxes, {})) for index in range(2)]
    outcomes: list[Any] = [None, None]
    threads = [threading.Thread(target=lambda i=i: outcomes.__setitem__(i, run_worker(program, workers[i]))) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if busy:
        assert outcomes == [(True, [(0, [0])]), (True, [(0, [1])])]
    else:
        assert isinstance(first_failure(outcomes), StalledError)
