"""Scopes of one's own in a dataflow, at any depth and on several workers: what they report, also what is not true, and what is
refused.

White box: ``execute`` makes the transports itself, and the one here counts how often it waits.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.dataflow.epochs import merged, simulated
from tests.dataflow.own_scopes import Batches, Doubler, Own, Stubborn, Total
from timely import (
    Antichain,
    CapabilityError,
    ChangeBatch,
    Exchange,
    GraphError,
    OperatorError,
    Product,
    ProductSummary,
    ProgressError,
    StalledError,
    Step,
    TimestampError,
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


class Scripted(Own):
    """Does one thing in the pull in which it finds a message, holding a capability at 5 (of which the message is at 7)."""

    def __init__(self, deed: Callable[[Any, Any, Any, Any], object]) -> None:
        super().__init__(1, Step(1), [5])
        self.deed = deed

    def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
        if self.inlets[0]:
            self.deed(self, held, consumed[0], produced)
        return False


def read(scope: Any, consumed: ChangeBatch[Any]) -> object:
    """Take the message, and say so."""
    for time, batch in scope.inlets[0]:
        consumed.update(time, len(batch))
    return scope


def script(deed: Callable[[Any, Any, Any, Any], object]) -> list[tuple[int, list[Any]]]:
    """Run a scope that does this, on two records at time 7; return what came out of it, even if it failed."""
    worker = timely.Worker()
    with worker.dataflow(name="test") as scope:
        handle, stream = scope.new_input()
        seen = scope.add_scope(Scripted(deed), [stream], name="liar")[0].capture()
    handle.advance_to(7)
    handle.send_batch(["a", "b"])
    handle.close()
    try:
        for _ in range(5):
            worker.step()
    except Exception as error:
        assert seen.extract() == []
        error.add_note("nothing was let go")
        raise
    return seen.extract()


def send(scope: Any, produced: ChangeBatch[Any], time: int, count: int, batch: Sequence[Any] = ("x",)) -> object:
    scope.outlet.send(time, list(batch))
    produced.update(time, count)
    return scope


@pytest.mark.parametrize(
    ("deed", "match"),
    [
        (lambda s, h, c, p: send(s, p, 4, 1), "produced messages at 4 on output 0, which nothing"),
        (lambda s, h, c, p: h.update(4, 1), "holds a capability at 4 on output 0, which nothing"),
        (lambda s, h, c, p: h.update(5, -2), "gave back more capabilities at 5"),
        (lambda s, h, c, p: c.update(7, 1), "consumed 1 records at 7, and has read 0"),
        (lambda s, h, c, p: (read(s, c), c.update(7, 1)), "consumed 3 records at 7, and has read 2"),
        (lambda s, h, c, p: (read(s, c), c.update(6, 1)), "consumed 1 records at 6, and has read 0"),
        (lambda s, h, c, p: send(s, p, 5, 2), "produced 2 records at 5, and sent 1"),
        (lambda s, h, c, p: send(s, p, 5, 0), "produced 0 records at 5, and sent 1"),
        (lambda s, h, c, p: p.update(6, 3), "produced 3 records at 6, and sent 0"),
        (lambda s, h, c, p: (send(s, p, 5, 1), s.outlet.send(6, ["y"])), "produced 0 records at 6, and sent 1"),
    ],
)
def test_a_statement_that_is_not_true_is_refused(deed: Any, match: str) -> None:
    with pytest.raises(ProgressError, match="scope 'liar' \\(/test/liar#1\\)") as error:
        script(deed)
    assert error.value.__notes__ == ["nothing was let go"]
    with pytest.raises(ProgressError, match=match):
        raise error.value


@pytest.mark.parametrize(
    ("deed", "expected"),
    [
        (lambda s, h, c, p: send(s, p, 5, 1), [(5, ["x"])]),
        (lambda s, h, c, p: (read(s, c), send(s, p, 8, 2, "ab"), h.update(5, -1)), [(8, ["a", "b"])]),
        (lambda s, h, c, p: (h.update(5, -1), send(s, p, 6, 1)), [(6, ["x"])]),
        (lambda s, h, c, p: s.outlet.send(5, []), []),
    ],
)
def test_one_that_is_true_is_not(deed: Any, expected: list[Any]) -> None:
    assert script(deed) == expected


def test_what_was_read_may_be_reported_later() -> None:
    class Slow(Own):
        def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
            for message in self.inlets[0]:
                self.read.append(message)
            if self.pulls > 6:
                for time, batch in self.read:
                    consumed[0].update(time, len(batch))
                    self.send(time, batch, produced)
                self.read.clear()
            return self.pulls <= 6

        read: list[Any]

    slow = Slow()
    slow.read = []
    worker = timely.Worker()
    with worker.dataflow() as scope:
        out = scope.add_scope(slow, [scope.to_stream([1, 2])])[0]
        probe, seen = out.probe(), out.capture()
    while worker.step():
        assert probe.less_equal(0) or slow.pulls > 6
    assert seen.extract() == [(0, [1, 2])]


@pytest.mark.parametrize(
    ("deed", "kind", "match"),
    [
        (lambda s, h, c, p: 1 // 0, ZeroDivisionError, "division"),
        (lambda s, h, c, p: s.outlet.send("late", ["x"]), TimestampError, "'late' is not a time of type int"),
        (lambda s, h, c, p: h.update((5, 5), 1), TimestampError, r"\(5, 5\) is not a time of type int"),
        (lambda s, h, c, p: p.update(None, 1), TimestampError, "None is not a time of type int"),
    ],
)
def test_what_a_scope_raises_names_it(deed: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(OperatorError, match=r"scope 'liar' \(/test/liar#1\) on worker 0 raised") as error:
        script(deed)
    assert (error.value.name, error.value.path, error.value.worker) == ("liar", "/test/liar#1", 0)
    assert isinstance(error.value.__cause__, kind)
    with pytest.raises(kind, match=match):
        raise error.value.__cause__


def test_a_key_that_fails_on_what_a_scope_sent_names_both() -> None:
    def build(scope: Any) -> Any:
        return scope.add_scope(Doubler(), [scope.to_stream([1])])[0].exchange(lambda x: 1.5j)

    says = "operator 'exchange' .* for what scope 'Doubler' .* sent, raised RoutingError: .* built at test_add_scope"
    with pytest.raises(OperatorError, match=says) as error:
        timely.example(build)
    assert error.value.path == "/example/exchange#2"


def test_a_key_that_fails_on_what_a_scope_reads_names_the_scope() -> None:
    says = "scope 'Doubler' .* for what operator 'to_stream' .* sent, raised RoutingError: .* built at test_add_scope"
    with pytest.raises(OperatorError, match=says):
        timely.example(lambda scope: scope.add_scope(Doubler(), [(scope.to_stream([1]), Exchange(lambda x: 1.5j))])[0])


@pytest.mark.parametrize("method", ["connect", "get_internal_summary", "set_external_summary", "push_external_progress"])
def test_what_a_scope_raises_while_it_is_built_or_run_names_it_and_the_line(method: str) -> None:
    def fail(self: Any, *arguments: object) -> None:
        raise KeyError("mine")

    scripted = type("Scripted", (Doubler,), {method: fail})
    says = r"scope 'Scripted' \(/example/Scripted#1\) on worker 0 raised KeyError: 'mine'; 'Scripted' was built at test_add_scope"
    with pytest.raises(OperatorError, match=says) as error:
        timely.example(lambda scope: scope.add_scope(scripted(), [scope.to_stream([1])])[0])
    assert isinstance(error.value.__cause__, KeyError)
    assert (error.value.name, error.value.path, error.value.worker) == ("Scripted", "/example/Scripted#1", 0)


def test_records_move_while_the_scope_is_pulled_only() -> None:
    own, worker = Own(), timely.Worker()
    with worker.dataflow(name="test") as scope:
        scope.add_scope(own, [scope.to_stream([1])], name="own")
    worker.step()
    assert len(own.inlets[0]) == 1
    with pytest.raises(CapabilityError, match=r"output 0 of scope 'own' \(/test/own#1\): .* only while the scope is pulled"):
        own.outlet.send(0, [1])
    with pytest.raises(CapabilityError, match=r"input 0 of scope 'own' \(/test/own#1\): .* only while the scope is pulled"):
        list(own.inlets[0])
    assert len(own.inlets[0]) == 1


class Batch(list[int]):
    """A container whose end one can see."""


def test_a_dataflow_that_is_dropped_keeps_nothing_that_its_scopes_have_not_read() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        handle, stream = scope.new_input()
        scope.add_scope(Own(), [stream])
    batch = Batch([1, 2])
    references = weakref.ref(batch)
    handle.send_batch(batch)
    del batch
    worker.step()
    assert references() is not None
    worker.drop_dataflow(scope)
    assert references() is None


# -- what takes no records ---------------------------------------------------------------------------------------------


class Unseeing(Stubborn):
    """A scope of the protocol alone: no record ever reaches it. It may report as consumed what was reported as sent."""

    inputs = outputs = 1

    def get_internal_summary(self) -> Any:
        return [[Antichain([Step(0)])]], [[]]

    def pull_internal_progress(self, internal: Batches, consumed: Batches, produced: Batches) -> bool:
        count, self.left = self.left, 0
        consumed[0].update(0, count)
        return False


@pytest.mark.parametrize("reported", [0, 1, 2])
def test_a_scope_may_report_the_consumption_itself(reported: int) -> None:
    assert timely.example(lambda s: s.add_scope(Unseeing(reported), [s.to_stream([1, 2])])[0]) == []


def test_a_scope_may_not_consume_more_than_came() -> None:
    with pytest.raises(ProgressError, match="consumed 3 records at 0, and has read 2"):
        timely.example(lambda s: s.add_scope(Unseeing(3), [s.to_stream([1, 2])])[0])


# -- what cannot be built ----------------------------------------------------------------------------------------------


class Hasty(Stubborn):
    patient = True


class Shapeless(Stubborn):
    inputs = 1


@pytest.mark.parametrize(
    ("place", "kind", "match"),
    [
        (lambda s: s.add_scope(object(), name="odd"), GraphError, "'odd'.*no timely.Scope, it lacks inputs, outputs, get"),
        (lambda s: s.add_scope(Own), GraphError, "it lacks inputs, outputs$"),
        (lambda s: s.add_scope(Doubler(2), [s.empty()]), GraphError, "'Doubler'.*has 2 inputs, and 1 streams were given"),
        (lambda s: s.add_scope(Doubler(), [7]), GraphError, "input 0 is to be a stream or .stream, pact., and is 7"),
        (lambda s: s.add_scope(Doubler(), [(s.empty(), "key")]), GraphError, "input 0 of scope 'Doubler'.*a pact is"),
        (lambda s: s.add_scope(Hasty(1)), GraphError, "patient needs connect"),
        (lambda s: s.add_scope(Shapeless(1), [s.empty()]), GraphError, "/example/Shapeless#.*summaries.input..output. for 1"),
        (lambda s: s.add_scope(Sworn), GraphError, "'type'.*Sworn'> is a class: give an object of it"),
        (lambda s: s.add_scope(Doubler(), None), GraphError, "'Doubler'.*the streams that the scope reads in a list.*not None"),
        (lambda s: s.add_scope(Doubler(), s.empty()), GraphError, "'Doubler'.*that the scope reads in a list.*not Stream"),
        (lambda s: s.add_scope(Sworn(None)), GraphError, "/example/Sworn#0'.*must return .summaries, counts., and returned None"),
        (lambda s: s.add_scope(Sworn([[[]]])), GraphError, "/example/Sworn#0'.*must return .summaries, counts., and returned"),
        (lambda s: s.add_scope(Sworn(([], [{0: 1}]))), GraphError, "/example/Sworn#0'.*initial capabilities for 1 outputs"),
        (lambda s: s.add_scope(Sworn(([], [[(0, -1)]]))), GraphError, "/example/Sworn#0'.*initial capabilities for 1 outputs"),
        (lambda s: s.add_scope(Sworn(([], [[(0, "1")]]))), GraphError, "/example/Sworn#0'.*initial capabilities for 1 outputs"),
        (lambda s: s.add_scope(Sworn(([], [[("a", 1)]]))), TimestampError, "'Sworn' ./example/Sworn#0.: an initial.*'a' is not"),
    ],
)
def test_what_is_no_scope(place: Any, kind: type[Exception], match: str) -> None:
    def build(scope: Any) -> Any:
        place(scope)
        return scope.empty()

    with pytest.raises(kind, match=match):
        timely.example(build)


class Sworn(Own):
    """A source with the attributes that it is made with; it drops two capabilities for 0 in its third pull."""

    inputs, outputs = 0, 1

    def __init__(self, summary: Any) -> None:
        super().__init__(0)
        self._summary = summary

    def get_internal_summary(self) -> Any:
        return self._summary

    def work(self, held: ChangeBatch[Any], consumed: Batches, produced: ChangeBatch[Any]) -> bool:
        if self.pulls == 3:
            held.update(0, -2)
        return self.pulls < 3


@pytest.mark.parametrize(
    "counts", [[(0, 2)], [(0, 1), (0, 1)], {0: 2}.items(), iter([(0, 2)]), ChangeBatch([(0, 2)]), [(0, 2), (3, 1), (3, -1)]]
)
def test_initial_capabilities_are_added_up(counts: Any) -> None:
    worker = Worker()
    with worker.dataflow(int) as scope:
        probe = scope.add_scope(Sworn(([], [counts])))[0].probe()
    worker.step()
    assert probe.frontier() == Antichain([0])
    worker.run()
    assert probe.done()
