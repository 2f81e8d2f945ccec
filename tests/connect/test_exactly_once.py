"""Sources and sinks: nothing is lost or doubled, whatever dies, and what cannot be so is refused.

White box: the line of progress is on terminals alone.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import timely
from timely import connect
from timely import differential as dd
from timely.connect import Change, ReadBatch
from timely.dataflow import route
from timely.errors import ConfigurationError, ConnectorError, OperatorError
from timely.inspect.run_status import RunStatus
from timely.recovery import MemoryStore, Recovery
from timely.testing import MemoryBroker, MemorySink, MemorySource, check_sink, check_source


def random_changes(seed: int) -> tuple[list[Change], dict[Any, int]]:
    """Changes after each of which a row is there once or not, and what they add up to."""
    choice = random.Random(seed)
    rows: Counter[Any] = Counter()
    changes: list[Change] = []
    for _ in range(40):
        row = (choice.randrange(8), choice.choice("abc"))
        diff = -1 if rows[row] else 1
        rows[row] += diff
        changes.append((row, diff))
    return changes, {row: count for row, count in rows.items() if count}


@pytest.mark.parametrize("seed", range(4))
def test_each_change_is_there_once_whatever_dies(seed: int) -> None:
    changes, rows = random_changes(seed)
    parts = {name: changes[number::3] for number, name in enumerate("abc")}
    broker = MemoryBroker({**parts, "empty": []})
    assert check_source(lambda: MemorySource(broker), rows, seed=seed, odds=0.2) > 0
    assert broker.acknowledged
    target = MemoryBroker()
    assert check_sink(lambda: MemorySink(target), lambda: target.rows, changes, seed=seed, odds=0.2) > 0


class Forgetful(MemorySource):
    """Forgets what it acknowledges too early."""

    def read(self, partition: str, begin: int, rows: int) -> ReadBatch:
        read = super().read(partition, begin, rows)
        self.acknowledge({partition: read.end})
        return read


class Skipping(MemorySource):
    """Skips what is gone."""

    def read(self, partition: str, begin: int, rows: int) -> ReadBatch:
        return super().read(partition, begin + 1, rows)


class Repeating(MemorySink):
    """Applies an epoch that it has once more."""

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        self._broker.epoch = None
        super().commit(epoch, changes)


class Losing(MemorySink):
    """Notes an epoch before it has it."""

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        super().commit(epoch, changes[1:])


@pytest.mark.parametrize("kind", [Forgetful, Skipping])
def test_the_checker_finds_sources_that_are_wrong(kind: type[MemorySource]) -> None:
    changes, rows = random_changes(1)
    with pytest.raises((AssertionError, timely.TimelyError)):
        for seed in range(20):  # a kill may come where it does no harm
            check_source(partial(kind, MemoryBroker({"a": changes})), rows, seed=seed, odds=0.3)


@pytest.mark.parametrize("kind", [Repeating, Losing])
def test_the_checker_finds_sinks_that_are_wrong(kind: type[MemorySink]) -> None:
    with pytest.raises(AssertionError):
        for seed in range(20):
            broker = MemoryBroker()
            check_sink(partial(kind, broker), partial(getattr, broker, "rows"), random_changes(1)[0], seed=seed, odds=0.3)


def test_a_view_of_a_source_is_in_a_sink() -> None:
    changes, rows = random_changes(7)
    broker = MemoryBroker({"a": changes})
    target = MemoryBroker()
    store = MemoryStore()

    def program(worker: timely.Worker, workers: int, most: int) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                table = dd.table(scope, MemorySource(broker, schema="key long, word string", bounded=workers == 3))
                table.group_by("key").agg("max(word) as greatest", "count(*) as n").write(MemorySink(target))
            connect.run(recovery, seconds=0, until=lambda: workers < 3 and broker.acknowledged.get("a") == most)

    for workers, most in ((1, 10), (2, 20), (3, len(changes))):
        broker.partitions["a"] = changes[:most]
        timely.execute(partial(program, workers=workers, most=most), workers=workers)
    by_key: dict[int, list[str]] = {}
    for key, word in rows:
        by_key.setdefault(key, []).append(word)
    assert dict(target.rows) == {(key, max(words), len(words)): 1 for key, words in by_key.items()}


def copied(broker: MemoryBroker, target: MemoryBroker, store: MemoryStore) -> None:
    """Copy the partitions of one broker to the rows of another."""
    with timely.Worker() as worker, Recovery(worker, store) as recovery:
        with worker.dataflow(int) as scope:
            scope.read(MemorySource(broker), every=0).write(MemorySink(target))
        connect.run(recovery, seconds=0)


def test_a_sink_of_other_checkpoints_is_refused() -> None:
    broker, target, store = MemoryBroker({"a": [("to", 1)]}), MemoryBroker(), MemoryStore()
    copied(broker, target, store)
    copied(broker, target, store)
    with pytest.raises(OperatorError, match=r"'write memory'.*has the rows of other checkpoints, up to epoch \d") as raised:
        copied(broker, target, MemoryStore())
    assert isinstance(raised.value.__cause__, ConnectorError)
    assert target.rows == {"to": 1}


def test_positions_that_are_gone_are_an_error() -> None:
    broker, store = MemoryBroker({"a": [("to", 1), ("be", 1)]}), MemoryStore()
    broker.acknowledged["a"] = 1
    with pytest.raises(OperatorError, match="partition 'a' begins at 1, and position 0 is gone"):
        copied(broker, MemoryBroker(), store)


def test_an_older_run_cannot_write() -> None:
    target = MemoryBroker()
    older, newer = MemorySink(target), MemorySink(target)
    older.open("a", None)
    newer.open("b", None)
    with pytest.raises(ConnectorError, match="another run has opened it"):
        older.commit(1, [("row", 1)])
    newer.commit(1, [("row", 1)])
    assert target.rows == {"row": 1}


class Unreachable(MemorySink):
    """One whose acknowledgement of each second commit is lost."""

    commits = 0

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        super().commit(epoch, changes)
        self.commits += 1
        if self.commits % 2:
            raise ConnectorError("no answer")


def test_a_run_that_goes_on_after_a_failed_commit_repeats_it_first() -> None:
    target = MemoryBroker()
    with timely.Worker() as worker, Recovery(worker, MemoryStore()) as recovery:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            stream.write(Unreachable(target))
        for time in range(4):
            numbers.send((time, 1))
            numbers.advance_to(time + 1)
            with pytest.raises(OperatorError, match="'write memory'.*no answer"):
                recovery.checkpoint(time + 1)
        numbers.close()
        worker.run()
    assert target.rows == dict.fromkeys(range(4), 1)


def test_what_is_read_later_is_not_sent_earlier() -> None:
    """Where one partition is over, its worker has sent at times at which the other one is not yet."""
    first, second = (next(name for name in "abcdef" if route(name) % 2 == worker) for worker in (0, 1))
    target, store = MemoryBroker(), MemoryStore()

    class Keyed(MemorySource):
        keyed = True

        def read(self, partition: str, begin: int, rows: int) -> ReadBatch:
            read = super().read(partition, begin, rows)
            return read._replace(over=read.over and (partition == first or len(records) == 6))

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                scope.read(Keyed(broker), every=0, rows=1).write(MemorySink(target))
            for _ in range(20):
                worker.step()
            recovery.checkpoint()
            if len(records) == 6:
                connect.run(recovery, seconds=0)

    broker = MemoryBroker({first: [("key", n) for n in range(5)], second: []})
    records = broker.partitions[first]
    timely.execute(program, workers=2)
    records.append(("key", 5))
    timely.execute(program, workers=2)
    assert target.rows == {5: 1}


def test_a_partition_that_comes_while_nothing_else_does_is_read() -> None:
    broker = MemoryBroker({"a": [("to", 1)]})
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            capture = scope.read(MemorySource(broker, bounded=False), every=0).capture()
        for partition in "bc":
            for _ in range(5):
                worker.step()
            broker.partitions[partition] = [(partition, 1)]
        for _ in range(5):
            worker.step()
        worker.drop_dataflow(scope)
    assert [changes for _, changes in capture.extract()] == [[("to", 1)], [("b", 1)], [("c", 1)]]


@pytest.mark.parametrize("epoch", [None, 0, 99])
def test_a_sink_that_is_behind_or_ahead_of_the_checkpoint_is_refused(epoch: int | None) -> None:
    broker, target, store = MemoryBroker({"a": [("to", 1)]}), MemoryBroker(), MemoryStore()
    for word in ("be", "or"):
        copied(broker, target, store)
        broker.partitions["a"].append((word, 1))
    copied(broker, target, store)
    copied(broker, target, store)  # nothing new
    assert target.epoch is not None
    target.epoch = epoch
    with pytest.raises(OperatorError, match=rf"has epoch {epoch}, and the run goes on from a checkpoint at \d+, when it had \d"):
        copied(broker, target, store)


class Stopped(MemorySink):
    """Ends the run before it writes what a checkpoint holds."""

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        raise ConnectorError("stopped")


@pytest.mark.parametrize("stops", [False, True])
def test_a_changed_program_goes_on_with_its_sources_and_sinks(stops: bool) -> None:
    changes, _ = random_changes(3)
    orders, names = MemoryBroker({"a": changes[:20], "b": []}), MemoryBroker({"a": [((key, f"n{key}"), 1) for key in range(8)]})
    target, other, store = MemoryBroker(), MemoryBroker(), MemoryStore()
    before = "select key, count(*) as n from orders group by key"
    after = "select name, count(*) as n from orders join names using (key) group by name"

    def program(worker: timely.Worker, query: str, sink: type[MemorySink]) -> None:
        with Recovery(worker, store, changed="migrate") as recovery:
            with worker.dataflow(int) as scope:
                tables = {"orders": dd.table(scope, MemorySource(orders, schema="key long, word string"), name="orders")}
                if query == after:
                    source = MemorySource(names, schema="key long, name string", name="names")
                    tables["names"] = dd.table(scope, source, name="names")
                    with scope.named("out"):
                        tables["orders"].write(MemorySink(other, name="other"))
                dd.sql(scope, query, name="totals", **tables).write(sink(target))
            connect.run(recovery)

    if stops:
        with pytest.raises(timely.TimelyError, match="stopped"):
            timely.execute(partial(program, query=before, sink=Stopped))
    timely.execute(partial(program, query=before, sink=MemorySink))
    if stops:  # what the sink of the old program has not is in the outbox
        orders.partitions["b"] = changes[20:30]
        with pytest.raises(timely.TimelyError, match="stopped"):
            timely.execute(partial(program, query=before, sink=Stopped), workers=2)
    orders.partitions["b"] = changes[20:]
    for _ in range(2):
        timely.execute(partial(program, query=after, sink=MemorySink), workers=2)
    sums: Counter[Any] = Counter()
    for row, diff in changes:
        sums[row] += diff
    assert dict(other.rows) == {row: n for row, n in sums.items() if n}
    counts: Counter[Any] = Counter()
    for (key, _), n in sums.items():
        counts[f"n{key}"] += n
    assert dict(target.rows) == {(name, n): 1 for name, n in counts.items() if n}


def refusal(build: Any) -> str:
    """The error of a program with a recovery."""
    with timely.Worker() as worker, Recovery(worker, MemoryStore()) as recovery, pytest.raises(timely.TimelyError) as raised:
        build(worker, recovery)
    return str(raised.value)


def test_what_cannot_be_right_is_refused() -> None:
    broker = MemoryBroker({"a": [("to", 1)]})

    def nested(worker: timely.Worker, recovery: Recovery) -> None:
        with worker.dataflow(int) as scope, scope.iterative() as inner:
            inner.read(MemorySource(broker))  # type: ignore[misc]

    def other_times(worker: timely.Worker, recovery: Recovery) -> None:
        with worker.dataflow(timely.Product[int, int]) as scope:
            scope.to_stream([("to", 1)]).write(MemorySink(broker))  # type: ignore[misc]

    def records(worker: timely.Worker, recovery: Recovery) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream([1]).write(MemorySink(broker))
        connect.run(recovery, seconds=0)

    def before(worker: timely.Worker, recovery: Recovery) -> None:
        with worker.dataflow(int) as scope:
            scope.read(MemorySource(broker, bounded=False), every=0)
        for _ in range(3):
            broker.partitions["a"].append(("be", 1))
            worker.step()
        recovery.checkpoint(1)

    def dropped(worker: timely.Worker, recovery: Recovery) -> None:
        with worker.dataflow(int) as scope:
            scope.read(MemorySource(broker, bounded=False), every=0).write(MemorySink(MemoryBroker()))
        worker.step()
        worker.drop_dataflow(scope)
        recovery.checkpoint()

    def dropped_in_flight(worker: timely.Worker, recovery: Recovery) -> None:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            stream.write(MemorySink(broker))
        numbers.send(("to", 1))
        numbers.close()
        worker.drop_dataflow(scope)
        recovery.checkpoint(1)

    def twice(worker: timely.Worker, recovery: Recovery) -> None:
        sink = MemorySink(broker)
        with worker.dataflow(int) as scope:
            for _ in range(2):
                scope.to_stream([("to", 1)]).write(sink)

    def seconds(worker: timely.Worker, recovery: Recovery) -> None:
        connect.run(recovery, seconds=31)

    builds = (nested, other_times, records, before, dropped, dropped_in_flight, twice, seconds)
    texts = {build: refusal(build) for build in builds}
    assert "are in a dataflow's own scope, with times of type int" in texts[nested]
    assert "are in a dataflow's own scope, with times of type int" in texts[other_times]
    assert "takes pairs of a row and a difference, and [1] came" in texts[records]
    assert "call checkpoint() without a time, not with 1" in texts[before]
    assert "has read more than the sinks of its dataflow have, which was dropped" in texts[dropped]
    assert "does not have all that was sent: its dataflow was dropped" in texts[dropped_in_flight]
    assert "holds another stream already" in texts[twice]
    assert "seconds=31" in texts[seconds]


def test_a_sink_needs_checkpoints() -> None:
    with pytest.raises(OperatorError, match=r"with timely\.recovery\.Recovery") as raised:
        timely.example(lambda scope: scope.to_stream([("to", 1)]).write(MemorySink(MemoryBroker())))  # type: ignore[arg-type, return-value]
    assert isinstance(raised.value.__cause__, ConfigurationError)
    assert "was built at test_exactly_once.py:" in str(raised.value)


def test_a_source_without_checkpoints_begins_anew_and_is_never_acknowledged() -> None:
    broker = MemoryBroker({"a": [("to", 1)]})
    for every in (0, 1e-9, 30):  # an epoch may be over before the first read
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                capture = scope.read(MemorySource(broker), every=every).capture()
            worker.run()
        assert [changes for _, changes in capture.extract()] == [[("to", 1)]]
    assert broker.acknowledged == {}


def test_a_run_says_how_far_its_sources_are() -> None:
    broker = MemoryBroker({"a": [("to", 1)] * 9, "b": [("be", 1)]})
    with timely.Worker() as worker:
        with worker.dataflow(int, name="words") as scope:
            scope.read(MemorySource(broker), every=0, rows=4)
        texts = set()
        while worker.scopes:
            texts |= {RunStatus(lambda: 0).text([worker]), *re.findall("a at.*? behind", scope.picture().mermaid())}
            worker.step()
    assert texts >= {
        "words: epoch 1 | read memory: a at 8, 1 of 2 partitions read, 1 behind",
        "a at 8, 1 of 2 partitions read, 1 behind",
    }


def test_partitions_are_read_in_the_order_of_their_source() -> None:
    source = MemorySource(MemoryBroker({str(month): [(month, 1)] for month in range(12)}))
    assert timely.example(lambda scope: scope.read(source, every=0, rows=1)) == [(month, [(month, 1)]) for month in range(12)]
