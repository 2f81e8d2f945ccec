"""``Connectors``: runs the sources and sinks that scripts define, each on a thread of its own.

What a source reads is one epoch with its positions, which are a table. A sink's rows are a table too, which follows the view:
what it changes is an epoch before the sink gets it. Invariant: a sink lacks one epoch of its table at most. So each happens once,
since an epoch of tables does.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from timely.connect.keyed_rows import keyed
from timely.connect.source_operator import positions_text, replace
from timely.differential.updates.updates import consolidate
from timely.errors import CompactedError, ConnectorError, TimelyError, error_text
from timely.server.catalog import Definition
from timely.server.connector_options import connector_of
from timely.server.contents import Change, Row
from timely.server.views import Views
from timely.server.watcher import table_rows

_ROWS: Final = 4096
"""Rows of a source after which an epoch is full."""
_IDLE: Final = 10.0
"""Seconds after which positions become an epoch where no rows came."""


class _Feed(ABC):
    """A thread that has a source or sink go on until it is closed; after an error it is opened again."""

    def __init__(self, views: Views, definition: Definition, seconds: float) -> None:
        self.problem: str | None = None
        self._views = views
        self._mark = definition.made
        self._statement = definition.connector
        self._name = self._statement.name
        self._place = f"{definition.kind} {self._name}"
        self._seconds = seconds
        self._connector: Any = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"timely {self._place}", daemon=True)
        self._thread.start()

    @abstractmethod
    def _open(self) -> None:
        """Make the connector, and learn from its table where it goes on."""

    @abstractmethod
    def _step(self) -> bool:
        """Do what there is to do; return whether there may be more."""

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                if self._connector is None:
                    self._open()
                busy = self._step()
                self.problem = None
            except Exception as error:  # whatever it is, the others go on
                text = str(error) if isinstance(error, TimelyError) else error_text(error)
                self.problem, busy = f"{self._place}: {text.removeprefix(f'{self._place}: ')}", False
                self._reset()
            if not busy:
                self._over.wait(self._seconds if self.problem is None else 5 * self._seconds)
        self._reset()

    def _reset(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            connector.close()

    def _commit(self, changes: dict[str, Any]) -> None:
        self._views.begin_commit(changes, mark=self._mark).result()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()


class _SourceFeed(_Feed):
    """Has the tables of a source follow it."""

    def _open(self) -> None:
        self._connector, names = connector_of(self._statement)
        self._tables = {name: each.name for name, each in zip(names, self._statement.tables)}
        for name, each in zip(names, self._statement.tables):
            schema = self._connector.schemas[name] if hasattr(self._connector, "schemas") else self._connector.schema
            columns, declared = [column.lower() for column in schema.names], each.schema.names
            if columns != declared:
                raise ConnectorError(
                    f"{name} has the columns {', '.join(columns)}, and {each.name} is declared with {', '.join(declared)}:"
                    " declare them in that order"
                )
        self._saved = {partition: text for (partition, text), _ in self._views.read(f"{self._name}_positions").rows}
        self._places = {partition: json.loads(text) for partition, text in self._saved.items()}
        self._by_key: dict[Any, Row] | None = None
        if getattr(self._connector, "keyed", False):
            place = [column.name for column in self._views.describe(self._name).columns].index("_key")
            self._by_key = {row[place]: row for row, _ in self._views.read(self._name).rows}
        self._moved: set[str] = set()
        self._lags: dict[str, int | None] = {}
        self._ended: set[str] = set()
        self._due = monotonic()

    def _step(self) -> bool:
        source = self._connector
        names = source.partitions()
        for partition in names:
            if partition not in self._places:
                self._places[partition] = source.start(partition)
        for partition in self._ended.difference(names):
            self._ended.remove(partition)
            self._moved.add(partition)
            del self._places[partition], self._lags[partition]
        changes: dict[str, list[Change]] = {}
        size, ended = 0, len(self._ended)
        for partition in [each for each in self._places if each not in self._ended]:
            begin = self._places.pop(partition)
            batch, end, over, self._lags[partition] = source.read(partition, begin, _ROWS)
            self._add(batch, changes)
            size += len(batch)
            self._places[partition] = end  # behind the others, which are read before it is read again
            if end != begin:
                self._moved.add(partition)
            if over:
                self._ended.add(partition)
            if size >= _ROWS:
                break
        busy = size > 0 or len(self._ended) > ended
        if self._moved and (busy or monotonic() >= self._due):
            self._save(changes)
        self._views.sources[self._name] = positions_text(self._places, self._ended, self._lags)
        return busy

    def _reset(self) -> None:
        super()._reset()
        self._views.sources.pop(self._name, None)

    def _add(self, batch: Any, changes: dict[str, list[Change]]) -> None:
        """Add the changes of a batch to those of the tables."""
        if isinstance(batch, pa.RecordBatch):
            batch = [(row, 1) for row in table_rows(pa.Table.from_batches([batch]))]
        elif self._by_key is not None:
            batch = [change for key, row in batch for change in self._replaced(self._by_key, key.decode(), row)]
        for row, diff in batch:
            name, values = row if len(self._tables) > 1 else (next(iter(self._tables)), row)
            changes.setdefault(self._tables[name], []).append((values, diff))

    def _replaced(self, rows: dict[Any, Row], key: str, row: Row | None) -> list[Change]:
        before = rows.pop(key, None)
        if row is not None:
            rows[key] = row
        return replace(key, row, before)[1]

    def _save(self, changes: dict[str, list[Change]]) -> None:
        """Have changes and positions be an epoch."""
        texts = {partition: json.dumps(self._places[partition]) for partition in self._moved if partition in self._places}
        positions: Counter[Row] = Counter(dict.fromkeys(texts.items(), 1))
        positions.subtract((partition, self._saved.pop(partition)) for partition in self._moved if partition in self._saved)
        self._commit({**changes, f"{self._name}_positions": positions})
        self._saved.update(texts)
        self._moved.clear()
        self._due = monotonic() + _IDLE
        self._connector.acknowledge(self._places)


class _SinkFeed(_Feed):
    """Has a sink follow a view."""

    def _open(self) -> None:
        self._connector, self._key = connector_of(self._statement)
        self._columns = [column.name for column in self._views.describe(self._name).columns]
        self._last: int | None = self._connector.open(self._views.id, self._columns)
        if self._last is not None and self._last > self._views.last_change(self._name):
            raise self._lost()
        self._seen: int | None = None  # when the table and the view had the same rows

    def _step(self) -> bool:
        time, changes = self._pending()
        if changes:
            self._connector.commit(time, changes)
            self._last = time
        seen, changes = self._views.difference(self._name, self._statement.view, self._seen)
        keyed(self._name, self._key, self._columns, changes)  # which refuses them before they are an epoch
        if changes:
            self._commit({self._name: changes})
        self._seen = seen
        return bool(changes)

    def _pending(self) -> tuple[int, list[Change]]:
        """Return what the table has changed since the sink's epoch, and the epoch that has it."""
        time = self._views.last_change(self._name)
        if self._last is None:
            return time, self._views.read(self._name).rows
        try:
            epochs = self._views.changes(self._name, self._last)
        except CompactedError as error:
            raise self._lost() from error
        return time, consolidate([change for epoch in epochs for change in epoch.changes])

    def _lost(self) -> ConnectorError:
        return ConnectorError(
            f"it has epoch {self._last} of this server, which does not know what has changed since: bring back newer data, or"
            f" begin anew: drop sink {self._name}, empty its rows and its line in timely_sinks, and create it again"
        )


class Connectors:
    """Runs the sources and sinks of ``views``, also those defined later, until ``close``; ``problems`` says what fails."""

    def __init__(self, views: Views, seconds: float = 0.2) -> None:
        self._views = views
        self._seconds = seconds
        self._feeds: dict[str, _Feed] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timely connectors", daemon=True)
        self._thread.start()

    @property
    def problems(self) -> list[str]:
        """What is wrong with sources and sinks now."""
        return [feed.problem for feed in list(self._feeds.values()) if feed.problem]

    def _run(self) -> None:
        while not self._over.is_set():
            defined = {each.made: each for each in self._views.catalog.definitions.values() if each.kind in ("source", "sink")}
            for mark in self._feeds.keys() - defined.keys():
                self._feeds.pop(mark).close()  # before another one of its name begins
            for mark in defined.keys() - self._feeds.keys():
                feed = _SourceFeed if defined[mark].kind == "source" else _SinkFeed
                self._feeds[mark] = feed(self._views, defined[mark], self._seconds)
            self._over.wait(self._seconds)

    def close(self) -> None:
        """End all of them; a no-op when it is closed."""
        self._over.set()
        self._thread.join()
        for feed in self._feeds.values():
            feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
