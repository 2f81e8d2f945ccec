"""``check_source`` and ``check_sink``: connectors under random kills, and an in-memory broker to test programs with.

Invariant: whatever dies in between, a sink has each change of the source once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from timely.connect import Change, Position, ReadBatch, SinkConnector, SourceConnector, check_history
from timely.errors import ConnectorError, OperatorError
from timely.execution import execute
from timely.recovery import MemoryStore, Recovery
from timely.worker import Worker


class _Kill(Exception):
    """Ends a run in the middle, as a process that is killed would."""


class MemoryBroker:
    """Partitions of changes that sources read, and the rows of a sink; ``acknowledged`` may be forgotten.

    >>> broker = MemoryBroker({"a": [("to", 1)]})
    >>> broker.partitions["a"].append(("be", 1))
    >>> broker.partitions
    {'a': [('to', 1), ('be', 1)]}
    """

    def __init__(self, partitions: Mapping[str, Iterable[Change]] | None = None) -> None:
        self.partitions = {name: list(changes) for name, changes in (partitions or {}).items()}
        self.acknowledged: dict[str, int] = {}
        self.rows: Counter[Any] = Counter()
        self.history = ""
        self.epoch: int | None = None


class MemorySource:
    """Reads the partitions of a broker, up to their ends if ``bounded``; a position is the number of changes before it.

    >>> MemorySource(MemoryBroker({"a": [("to", 1), ("be", 1)]})).read("a", 1, 10)
    ReadBatch(batch=[('be', 1)], end=2, over=True, lag=0)
    """

    def __init__(self, broker: MemoryBroker, *, name: str = "memory", schema: str = "word string", bounded: bool = True) -> None:
        self.name = name
        self.schema = schema
        self.bounded = bounded
        self._broker = broker

    def partitions(self) -> list[str]:
        """Return the names of the broker's partitions."""
        return list(self._broker.partitions)

    def start(self, partition: str) -> int:
        """Return 0."""
        return 0

    def read(self, partition: str, begin: int, rows: int) -> ReadBatch:
        """Return changes from a position on, ``rows`` at most. ``ConnectorError`` where they are gone."""
        changes = self._broker.partitions[partition]
        oldest = self._broker.acknowledged.get(partition, 0)
        if begin < oldest:
            raise ConnectorError(f"partition {partition!r} begins at {oldest}, and position {begin} is gone")
        batch = changes[begin : begin + rows]
        end = begin + len(batch)
        return ReadBatch(batch, end, self.bounded and end >= len(changes), len(changes) - end)

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Forget what is before these positions."""
        self._broker.acknowledged.update(positions)

    def close(self) -> None:
        """Do nothing."""


class MemorySink:
    """Counts rows in a broker.

    >>> broker = MemoryBroker()
    >>> sink = MemorySink(broker)
    >>> sink.open("history", None)
    >>> sink.commit(1, [("to", 2)])
    >>> sink.commit(1, [("to", 2)])
    >>> broker.rows
    Counter({'to': 2})
    """

    def __init__(self, broker: MemoryBroker, *, name: str = "memory") -> None:
        self.name = name
        self._broker = broker
        self._history = ""

    def open(self, history: str, columns: Sequence[str] | None) -> int | None:
        """Return the last epoch. ``ConnectorError`` where the rows are of another history."""
        check_history(self.name, "memory", history, self._broker.history, self._broker.epoch)
        self._history = self._broker.history = history
        return self._broker.epoch

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        """Count the changes of a new epoch. ``ConnectorError`` where another run has opened the sink."""
        broker = self._broker
        if broker.history != self._history:
            raise ConnectorError(f"sink {self.name!r}: another run has opened it")
        if broker.epoch is None or epoch > broker.epoch:
            broker.epoch = epoch
            for row, diff in changes:
                broker.rows[row] += diff
                if not broker.rows[row]:
                    del broker.rows[row]

    def close(self) -> None:
        """Do nothing."""


class _Faults:
    """Decides when a run is killed: in ``odds`` of the calls."""

    def __init__(self, seed: int, odds: float) -> None:
        self.random = random.Random(seed)
        self._odds = odds

    def strike(self) -> None:
        if self.random.random() < self._odds:
            raise _Kill


class _KilledSource:
    """A source whose run is killed at random when it has read something, and when it acknowledges other positions."""

    def __init__(self, source: SourceConnector, faults: _Faults) -> None:
        self.name, self.bounded, self.schema = source.name, source.bounded, ""
        self.keyed = getattr(source, "keyed", False)
        self._source = source
        self._faults = faults
        self._positions: dict[str, Position] = {}
        self.partitions, self.start, self.close = source.partitions, source.start, source.close

    def read(self, partition: str, begin: Position, rows: int) -> ReadBatch:
        read = self._source.read(partition, begin, rows)
        if len(read.batch):  # else it waits, and may be asked again very often
            self._faults.strike()
        return read

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        news, self._positions = self._positions != positions, dict(positions)
        if news:
            self._faults.strike()
        self._source.acknowledge(positions)
        if news:
            self._faults.strike()


class _KilledSink:
    """A sink whose run is killed at random, before a commit or after it, when its acknowledgement is lost."""

    def __init__(self, sink: SinkConnector, faults: _Faults) -> None:
        self.name = sink.name
        self._sink = sink
        self._faults = faults
        self.open, self.close = sink.open, sink.close

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        self._faults.strike()
        self._sink.commit(epoch, changes)
        self._faults.strike()


def check_source(source: Callable[[], SourceConnector], expected: Mapping[Any, int], *, seed: int = 0, odds: float = 0.1) -> int:
    """Read a bounded source under random kills, and return how many there were; ``expected`` are its rows and their counts.

    Each run has one to three workers. ``AssertionError`` where a row is lost or doubled.

    >>> broker = MemoryBroker({"a": [("to", 1), ("be", 1)], "b": [("be", 1)]})
    >>> check_source(lambda: MemorySource(broker), {"to": 1, "be": 2}, odds=0)
    0
    """
    broker = MemoryBroker()
    kills = _run_until_over(source, lambda: MemorySink(broker), _Faults(seed, odds))
    assert dict(broker.rows) == dict(expected), f"seed {seed}: the source was read as {dict(broker.rows)}, not {dict(expected)}"
    return kills


def check_sink(
    sink: Callable[[], SinkConnector],
    rows: Callable[[], Mapping[Any, int]],
    changes: Sequence[Change],
    *,
    columns: Sequence[str] | None = None,
    seed: int = 0,
    odds: float = 0.1,
) -> int:
    """Write changes under random kills, and return how many there were; ``rows()`` reads what the sink has, with counts.

    ``changes`` are in the order in which they happen. ``AssertionError`` where the sink has other rows than their sum.

    >>> broker = MemoryBroker()
    >>> changes = [(("a", n), 1) for n in range(9)] + [(("a", n), -1) for n in range(8)]
    >>> check_sink(lambda: MemorySink(broker), lambda: broker.rows, changes, odds=0)
    0
    """
    broker = MemoryBroker({"changes": changes})
    kills = _run_until_over(lambda: MemorySource(broker), sink, _Faults(seed, odds), columns)
    sums: Counter[Any] = Counter()
    for row, diff in changes:
        sums[row] += diff
    expected = {row: count for row, count in sums.items() if count}
    assert dict(rows()) == expected, f"seed {seed}: the sink has {dict(rows())}, not {expected}"
    return kills


def _run_until_over(
    source: Callable[[], SourceConnector],
    sink: Callable[[], SinkConnector],
    faults: _Faults,
    columns: Sequence[str] | None = None,
) -> int:
    """Run a program that copies a source to a sink until it ends; return how often it was killed."""
    store, kills = MemoryStore(), 0

    def program(worker: Worker) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                changes = scope.read(_KilledSource(source(), faults), every=0, rows=faults.random.randint(1, 4))
                changes.write(_KilledSink(sink(), faults), columns=columns)
            over = False
            while not over:
                for _ in range(faults.random.randint(1, 5)):
                    worker.step()
                over = all(recovery.agree(not worker.scopes))
                recovery.checkpoint()

    while True:
        try:
            execute(program, workers=faults.random.randint(1, 3))
        except (_Kill, OperatorError) as error:
            if not isinstance(error.__cause__ or error, _Kill):
                raise
            kills += 1
        else:
            return kills
