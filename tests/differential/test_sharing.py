"""Arrangements that are read by key, and imported into other dataflows."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

import timely
from tests.differential import oracles
from timely import differential as dd
from timely.errors import GraphError, RoutingError, TimestampError
from timely.testing.differential import accumulated


class Source:
    """A session of pairs, in a dataflow of its own, with its arrangement."""

    def __init__(self, worker: timely.Worker, time: Any = int) -> None:
        self.worker = worker
        with worker.dataflow(time, name="source") as scope:
            self.session, collection = dd.new_collection(scope)
            self.arranged = collection.arrange_by_key()
            self.probe = self.arranged.as_collection().probe()
            self.scope = scope

    def advance_to(self, time: Any) -> None:
        self.session.advance_to(time)
        self.worker.step_while(lambda: self.probe.less_than(time))


# -- handles ---------------------------------------------------------------------------------------------------------------


def test_DD_H1_what_is_before_each_time() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        source.session.insert((1, 2))
        source.advance_to(1)
        source.session.insert((2, 3))
        source.advance_to(2)
        source.session.remove((2, 3))
        source.advance_to(3)
        assert [dict(trace.items(at=time)) for time in range(3)] == [{1: {2: 1}}, {1: {2: 1}, 2: {3: 1}}, {1: {2: 1}}]
        assert dict(trace.items()) == {1: {2: 1}}
        source.session.close()
        worker.run()
        assert trace.upper == [] and trace.since == [0]
        assert trace.get(2, at=1) == {3: 1} and trace.get(2) == {} == trace.get(7)


def test_DD_H7_what_cannot_be_read() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        with pytest.raises(dd.NotCompleteError, match=r"since=\[0\].*upper=\[0\]"):
            trace.get("k")
        source.advance_to(3)
        trace.advance([2])
        with pytest.raises(TimestampError, match=r"\[1\].*\[2\] cannot go back.*\[3\]"):
            trace.advance(1)
        with pytest.raises(dd.NotCompleteError, match=r"at 3: .*since=\[2\].*upper=\[3\]"):
            trace.get("k", at=3)
        with pytest.raises(dd.CompactedError, match=r"at 1: .*since=\[2\].*upper=\[3\]"):
            list(trace.items(at=1))
        with pytest.raises(TimestampError):
            trace.get("k", at="soon")
        trace.close()
        trace.close()
        with pytest.raises(dd.CompactedError, match="was closed"):
            trace.get("k", at=2)


def test_a_new_handle_begins_where_the_frontier_is() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        source.session.insert((1, 1))
        source.advance_to(5)
        trace = source.arranged.trace
        assert trace.since == [5]
        with pytest.raises(dd.NotCompleteError):
            trace.get(1)
        source.advance_to(6)
        assert trace.get(1) == trace.get(1, at=5) == {1: 1}


def test_a_snapshot_stays_at_its_time() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        source.session.insert((1, 1))
        source.advance_to(1)
        with trace.snapshot() as now, trace.snapshot(at=0) as first:
            trace.close()
            source.session.remove((1, 1))
            source.session.insert((2, 2))
            source.advance_to(100)
            assert now.get(1) == first.get(1) == {1: 1}
            assert dict(now.items()) == dict(first.items()) == {1: {1: 1}}
        with pytest.raises(dd.CompactedError):
            now.get(1)


def test_DD_H6_ten_readers() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        first = source.arranged.trace
        readers = [first, *(first.clone() for _ in range(9))]
        for time in range(200):
            source.session.update(("k", 1), 1)
            source.advance_to(time + 1)
        entries = source.arranged.index.trace.entries
        assert entries() == 200
        for reader in readers[:4]:
            reader.advance(150)
        for reader in readers[4:8]:
            reader.close()
        tenth = readers[9]
        del readers[8:], reader
        gc.collect()
        worker.step()
        assert entries() == 200 and [tenth.get("k", at=time) for time in (0, 77, 199)] == [{1: 1}, {1: 78}, {1: 200}]
        tenth.advance(100)
        worker.step()
        assert entries() <= 101 and tenth.get("k", at=120) == {1: 121}
        readers.clear()
        del tenth, first
        gc.collect()
        worker.step()
        assert entries() == 1


def test_memory_falls_when_the_dataflow_has_ended() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        for time in range(50):
            source.session.update(("k", 1), 1)
            source.advance_to(time + 1)
        source.session.close()
        worker.run()
        assert source.arranged.index.trace.entries() == 50 and trace.get("k", at=3) == {1: 4}
        trace.close()
        assert source.arranged.index.trace.entries() == 1
        again = source.arranged.trace
        assert again.get("k") == {1: 50}
        with pytest.raises(dd.CompactedError):
            again.get("k", at=3)


def test_partial_orders_have_no_latest_time() -> None:
    with timely.Worker() as worker:
        source = Source(worker, timely.Product[int, int])
        trace = source.arranged.trace
        source.session.insert((1, 1))
        source.session.update_at((1, 2), timely.Product(0, 1), 1)
        source.session.update_at((1, 3), timely.Product(1, 0), 1)
        source.advance_to(timely.Product(1, 1))
        assert trace.get(1, at=timely.Product(0, 1)) == {1: 1, 2: 1}
        with pytest.raises(TimestampError, match="give the time"):
            trace.get(1)
        source.session.close()
        worker.run()
        assert trace.get(1) == {1: 1, 2: 1, 3: 1}


def test_each_key_has_an_owner() -> None:
    def program(worker: timely.Worker) -> dict[int, Any]:
        source = Source(worker)
        trace = source.arranged.trace
        if worker.index == 0:
            source.session.insert_batch([(key, -key) for key in range(20)])
        source.advance_to(1)
        mine = {key: trace.get(key, at=0) for key in range(20) if trace.owner(key) == worker.index}
        for key in set(range(20)) - mine.keys():
            with pytest.raises(RoutingError, match=f"worker {trace.owner(key)} has the key"):
                trace.get(key, at=0)
        assert {key for key, _ in trace.items(at=0)} == mine.keys()
        source.session.close()
        worker.run()
        return mine

    results = timely.execute(program, workers=3)
    assert {key: value for mine in results for key, value in mine.items()} == {key: {-key: 1} for key in range(20)}
    assert all(results)


# -- imports ---------------------------------------------------------------------------------------------------------------

H2_INPUT: list[dict[tuple[int, int], int]] = [
    {(2, 0): 1, (1, 0): 1, (1, 3): 1, (4, 2): 1},
    {(2, 0): -1, (1, 0): -1},
    {(2, 0): 1, (1, 3): -1},
    {(1, 0): 1, (1, 3): 1, (2, 0): -1, (4, 2): -1},
    {(2, 0): 1, (4, 2): 1, (1, 3): -1},
    {(1, 3): 1, (4, 2): -1},
]
H2_OUTPUT = [
    {(1, 2): 1, (2, 1): 1, (4, 1): 1},
    {(1, 1): 1, (1, 2): -1, (2, 1): -1},
    {(1, 1): -1, (2, 1): 1},
    {(1, 2): 1, (2, 1): -1, (4, 1): -1},
    {(1, 1): 1, (1, 2): -1, (2, 1): 1, (4, 1): 1},
    {(1, 1): -1, (1, 2): 1, (4, 1): -1},
]


READS: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda pairs: pairs.reduce(oracles.number),
    "arranged again": lambda pairs: pairs.as_collection().map(lambda pair: pair).count_by_key(),
    "aggregate": lambda pairs: pairs.as_collection().count_by_key(),
}


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("workers", [1, 3, 4])
@pytest.mark.parametrize("late", [0, 1, 3, 6, 7])
def test_DD_H2_DD_H3_sums_by_key_in_a_second_dataflow(workers: int, late: int, reads: str) -> None:
    """The second dataflow is built after epoch ``late``; after all of them, and after the end of the first, with 7 (H3)."""

    def program(worker: timely.Worker) -> Any:
        source = Source(worker)
        result: Any = None

        def build() -> Any:
            with worker.dataflow(int) as scope:
                return READS[reads](trace.import_into(scope)).output()

        trace = source.arranged.trace
        for epoch, changes in enumerate(H2_INPUT):
            if epoch == late:
                result = build()
            for number, (pair, diff) in enumerate(changes.items()):
                if number % workers == worker.index:
                    source.session.update(pair, diff)
            source.advance_to(epoch + 1)
        if late == 6:
            result = build()
        source.session.close()
        worker.run()
        if late == 7:
            result = build()
        worker.run()
        return result.changes()

    changes = [change for part in timely.execute(program, workers=workers) for change in part]
    by_epoch = [oracles.added((record, diff) for record, when, diff in changes if when == epoch) for epoch in range(6)]
    assert by_epoch == H2_OUTPUT


def test_DD_H4_an_import_follows_the_frontier() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        with worker.dataflow(int) as scope:
            probe = source.arranged.trace.import_into(scope).as_collection().probe()
        source.session.advance_to(2)
        for _ in range(5):
            worker.step()
        assert not probe.less_than(2) and probe.less_equal(2)
        source.session.close()
        worker.run()


def test_DD_H5_closing_an_import_ends_its_dataflow() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        source.session.insert((1, 1))
        source.advance_to(1)
        with worker.dataflow(int, name="query") as scope:
            imported = source.arranged.trace.import_into(scope)
            probe = imported.as_collection().probe()
        for _ in range(3):
            worker.step()
        assert not probe.done()
        imported.close()
        for _ in range(3):
            worker.step()
        assert probe.done() and worker.dataflows == ["source"]
        with pytest.raises(GraphError, match="was not imported"):
            source.arranged.close()
        source.session.close()
        worker.run()


def test_what_goes_on_after_its_import_was_closed_sees_what_it_was() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        source.session.insert((1, "one"))
        source.advance_to(1)
        with worker.dataflow(int) as scope:
            imported = trace.import_into(scope)
            asked, keys = dd.new_collection(scope)
            output = imported.semijoin(keys).output()
        asked.insert(1)
        worker.step()
        source.session.insert((2, "two"))
        source.advance_to(2)
        imported.close()
        source.session.insert((3, "three"))
        source.session.remove((1, "one"))
        source.advance_to(3)
        for key in (2, 3):
            asked.insert(key)
            asked.advance_to(10 * key)
        assert output.at(2) == output.at(29) == {(1, "one"): 1, (2, "two"): 1}
        asked.close()
        source.session.close()
        worker.run()


def test_an_import_of_a_dropped_dataflow_is_never_complete() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        source.session.insert((1, "one"))
        trace = source.arranged.trace
        source.advance_to(1)
        with worker.dataflow(int) as scope:
            imported = trace.import_into(scope)
            output = imported.as_collection().output()
        worker.drop_dataflow(source.scope)
        assert output.at(0) == {(1, "one"): 1}
        assert trace.get(1, at=0) == {"one": 1}
        with pytest.raises(dd.NotCompleteError):
            output.at(1)
        imported.close()
        worker.run()


def test_DD_H8_an_arrangement_in_a_loop_and_outside_is_one() -> None:
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        source.session.insert_batch([(n, n + 1) for n in range(20)])
        source.advance_to(1)
        with worker.dataflow(int) as scope:
            edges = trace.import_into(scope)
            starts = dd.collection(scope, [15])
            with scope.iterative() as loop:
                inside = edges.enter(loop)
                nodes: dd.Variable[Any, int] = dd.Variable(loop, starts.enter(loop))
                steps = inside.join_map(nodes.collection.map(lambda node: (node, node)), lambda _, target, node: target)
                after = nodes.set(steps.concat(starts.enter(loop)).distinct()).leave().output()
            last = edges.semijoin(starts).output()
        assert after.at(0) == dict.fromkeys(range(15, 21), 1)
        assert last.at(0) == {(15, 16): 1}
        source.session.remove((17, 18))
        source.advance_to(2)
        assert after.at(1) == dict.fromkeys((15, 16, 17), 1)
        edges.close()
        source.session.close()
        worker.run()


@pytest.mark.parametrize("since", [3, 5])
@pytest.mark.parametrize("late", [False, True])
def test_history_before_since_comes_at_since(late: bool, since: int) -> None:
    """Also where another reader holds it, and where a query of an earlier time comes late."""
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        everything = trace.clone()
        for time in range(6):
            source.session.insert(("k", time))
            source.advance_to(time + 1)
        trace.advance(since)
        with worker.dataflow(int) as scope:
            imported = trace.import_into(scope)
            whole = imported.as_collection().output()
            asked, keys = dd.new_collection(scope)
            joined = imported.semijoin(keys).output()
        trace.close()
        if late:
            source.advance_to(7)
            for _ in range(5):
                worker.step()
        asked.insert("k")
        asked.close()
        everything.close()
        source.session.close()
        worker.run()
        expected = [(("k", time), max(time, since), 1) for time in range(6)]
        assert whole.changes() == joined.changes() == expected


def test_an_import_into_its_own_dataflow_or_another_time_is_refused() -> None:
    another = timely.Worker()
    with timely.Worker() as worker:
        source = Source(worker)
        source.advance_to(1)
        with worker.dataflow(timely.Product[int, int]) as scope, pytest.raises(TimestampError, match="has times of type"):
            source.arranged.trace.import_into(scope)
        with another.dataflow(int) as scope, pytest.raises(GraphError, match="another worker"):
            source.arranged.trace.import_into(scope)
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope)
            with pytest.raises(GraphError, match="its own dataflow"):
                collection.arrange_by_key().trace.import_into(scope)
        session.close()
        source.session.close()
        worker.run()


def test_DD_J9_queries_come_and_go_while_edges_move() -> None:
    def two_hops(edges: Counter[tuple[int, int]], start: int) -> dict[Any, int]:
        one = {(target, start): count for (source, target), count in edges.items() if source == start}
        return oracles.joined(edges, one, lambda _, target, query: (query, target))

    with timely.Worker() as worker:
        source = Source(worker)
        first = source.arranged.trace
        live: Counter[tuple[int, int]] = Counter()
        installed: dict[int, Any] = {}

        def change(edge: tuple[int, int], diff: int) -> None:
            source.session.update(edge, diff)
            live[edge] += diff
            if not live[edge]:
                del live[edge]

        for n in range(60):
            change((n % 20, n * 7 % 20), 1)
        for epoch in range(40):
            change((epoch % 20, epoch * 3 % 20), 1)
            change((epoch % 20, epoch * 7 % 20), -1)
            if epoch % 3 == 0:
                with worker.dataflow(int, name=f"query {epoch}") as scope:
                    graph = first.import_into(scope)
                    start = epoch % 20
                    starts = dd.collection(scope, [(start, start)])
                    one = graph.join_map(starts, lambda _, target, query: (target, query))
                    two = graph.join_map(one, lambda _, target, query: (query, target))
                    installed[start] = scope, graph, two.output()
            source.advance_to(epoch + 1)
            first.advance(epoch + 1)
            for start, (_, _, result) in installed.items():
                assert result.at(epoch) == two_hops(live, start), (epoch, start)
            if epoch % 5 == 4:
                start = next(iter(installed))
                scope, graph, _ = installed.pop(start)
                if epoch % 2:
                    worker.drop_dataflow(scope)
                else:
                    graph.close()
        for scope, _, _ in installed.values():
            worker.drop_dataflow(scope)
        installed.clear()
        first.close()
        worker.step()
        source.advance_to(50)
        trace = source.arranged.index.trace
        trace.compact()
        assert trace.entries() == len(live)
        assert not trace._rows.fresh and not trace._cursors and not trace.holds._operators and not trace.listeners
        assert not source.arranged.index.imports
        source.session.close()
        worker.run()


@pytest.mark.parametrize("ended", [False, True])
def test_a_query_costs_by_what_it_asks(ended: bool) -> None:
    """An import of 100,000 edges that joins a few keys looks these up, also where their dataflow has ended."""
    with timely.Worker() as worker:
        source = Source(worker)
        trace = source.arranged.trace
        begun = process_time()
        source.session.insert_batch([(n // 10, n * 7919 % 10_000) for n in range(100_000)])
        source.advance_to(1)
        all_of_them = process_time() - begun
        if ended:
            source.session.close()
            worker.step_while(lambda: bool(worker.dataflows))

        def ask(node: int, close: bool) -> tuple[float, Any]:
            begun = process_time()
            with worker.dataflow(int) as scope:
                graph = trace.import_into(scope)
                starts = dd.collection(scope, [(node, node)])
                one = graph.join_map(starts, lambda _, target, query: (target, query))
                two = graph.join_map(one, lambda _, target, query: (query, target)).output()
            answers = two.at(0)
            if close:
                graph.close()
                worker.drop_dataflow(scope)
            return process_time() - begun, answers

        times = []
        for node in range(20):
            seconds, answers = ask(node, node != 10)
            times.append(seconds)
            assert sum(answers.values()) == 100
        assert sorted(times)[10] < all_of_them / 10
        source.session.close()


def fed(chance: random.Random, worker: timely.Worker, build: Callable[[Any, Any], Any]) -> tuple[Any, list[Any]]:
    """Change two sources at random times of a partial order, and build with their traces at a random moment."""
    sources = [Source(worker, timely.Product[int, int]) for _ in range(2)]
    traces = [source.arranged.trace for source in sources]
    moment = chance.randrange(30)
    result: Any = None
    sent: list[list[Any]] = [[], []]
    for turn in range(30):
        if turn == moment:
            result = build(*traces)
        for number, source in enumerate(sources):
            now = source.session.time
            if chance.random() < 0.8:
                time = timely.Product(now[0] + chance.randrange(3), now[1] + chance.randrange(3))
                update = (chance.randrange(3), chance.randrange(3)), chance.choice([1, 1, -1, 2])
                source.session.update_at(update[0], time, update[1])
                sent[number].append((update[0], time, update[1]))
            if chance.random() < 0.3:
                source.session.advance_to(timely.Product(now[0] + chance.randrange(2), now[1] + chance.randrange(2)))
        for _ in range(chance.randrange(3)):
            worker.step()
    for source in sources:
        source.session.close()
    worker.run()
    return result, sent


GRID = [timely.Product(a, b) for a in range(0, 12, 2) for b in range(0, 12, 2)]


@pytest.mark.parametrize("seed", range(60))
def test_imports_at_any_moment_are_whole(seed: int) -> None:
    """Both sides of a join, a reduction, and the collection itself, with partially ordered times."""

    def build(one: Any, two: Any) -> Any:
        with worker.dataflow(timely.Product[int, int]) as scope:
            left, right = one.import_into(scope), two.import_into(scope)
            small = left.filter_trace(lambda key, value: key != value)
            return (
                left.join(right).output(),
                small.reduce(oracles.number).output(),
                left.as_collection().output(),
                left.count().output(),
            )

    with timely.Worker() as worker:
        (joined, reduced, whole, counted), (left, right) = fed(random.Random(seed), worker, build)
        for time in GRID:
            one, two = accumulated(left, time), accumulated(right, time)
            small = {pair: count for pair, count in one.items() if pair[0] != pair[1]}
            assert joined.at(time) == oracles.joined(one, two)
            assert whole.at(time) == one
            assert reduced.at(time) == oracles.reduced(oracles.number, small)
            assert counted.at(time) == oracles.counted(one)
