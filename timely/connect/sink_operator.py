"""``write``: the operator of a sink. Its state is the outbox: the changes that the sink gets when the checkpoint is durable."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from timely.connect.protocols import Change, SinkConnector
from timely.connect.source_operator import check_whole_times
from timely.dataflow import Distribute, InputPort, OperatorInfo, Stream, route, scope_of
from timely.dataflow.info import blaming
from timely.errors import CheckpointError, ConfigurationError, ConnectorError, ContainerError, brief
from timely.operators.generic import sink as sink_of


def write(
    stream: Stream[int, Any], sink: SinkConnector, *, columns: Sequence[str] | None = None, name: str | None = None
) -> None:
    """Have a sink hold the changes of a stream: ``stream.write(sink)``."""
    name = name or f"write {sink.name}"
    check_whole_times(scope_of(stream, name), name)
    owner = route(sink.name)
    pact = Distribute(lambda time, batch, workers: [(owner % workers, batch)])
    sink_of(stream, pact, name, lambda info: _Writer(sink, columns, owner, info).logic)


class _Writer:
    """The operator of a sink on one worker; the sink is open on the one that writes."""

    def __init__(self, sink: SinkConnector, columns: Sequence[str] | None, owner: int, info: OperatorInfo) -> None:
        if info.state.registry is None:
            raise ConfigurationError(
                "a sink has what a checkpoint holds: build the dataflow inside `with timely.recovery.Recovery(worker, folder):`"
            )
        self._sink = sink
        self._owner = owner
        self._info = info
        self._writes = owner % info.peers == info.worker
        self._pending: dict[int, dict[Any, int]] = {}  # changes by time
        self._outbox: dict[Any, int] = {}  # what the checkpoint at the boundary holds
        self._boundary = 0
        self._written: int | None = None  # the last epoch that the sink has for certain
        self._ended = self._dropped = False
        self._durable = False  # whether the checkpoint is
        self._history = secrets.token_hex(8)
        info.register_state(self._save, self._load, at_rest=True, follower=self)
        info.at_end(self._end)
        if self._writes:
            if _WRITERS.setdefault(id(sink), self) is not self:
                raise ConfigurationError(
                    f"sink {sink.name!r} holds another stream already, and has one epoch for both: concatenate them, or make a"
                    " second sink"
                )
            last = sink.open(self._history, columns)
            if last != self._written and (last != self._boundary or not self._changes()):
                raise ConnectorError(
                    f"sink {sink.name!r} has epoch {last}, and the run goes on from a checkpoint at {self._boundary}, when it"
                    f" had {self._written}: a newer checkpoint, or rows of the sink, are lost. Bring them back, or begin anew"
                    " with another folder and an empty sink"
                )
            self._durable = True
            self._commit()

    def logic(self, input: InputPort[int, Change]) -> None:
        batch: Any
        for capability, batch in input:
            changes = self._pending.setdefault(capability.time, {})
            if hasattr(batch, "to_pylist"):  # Arrow rows that are added
                from timely.operators.keyed.column_numbers import row_values

                batch = [(row, 1) for row in zip(*map(row_values, batch.columns))]
            try:
                for row, diff in batch:
                    changes[row] = changes.get(row, 0) + diff
            except (TypeError, ValueError) as error:
                raise ContainerError(f"a sink takes pairs of a row and a difference, and {brief(batch)} came: {error}") from error
        self._ended = not input.frontier

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save(self) -> Iterator[tuple[int, Any]]:
        for time in [time for time in self._pending if time < self._boundary]:  # they are complete
            for row, diff in self._pending.pop(time).items():
                self._outbox[row] = self._outbox.get(row, 0) + diff
        if self._writes:
            yield self._owner, (self._history, (self._boundary, self._written))
            for row, diff in self._outbox.items():
                yield self._owner, (None, row, diff)
            for time, changes in self._pending.items():
                for row, diff in changes.items():
                    yield self._owner, (time, row, diff)

    def _load(self, items: Iterable[Any]) -> None:
        for item in items:
            if len(item) == 2:
                self._history, (self._boundary, self._written) = item
            else:
                time, row, diff = item
                changes = self._outbox if time is None else self._pending.setdefault(time, {})
                changes[row] = diff

    def _end(self) -> None:
        self._dropped = not self._ended

    def stop(self) -> int | None:
        if self._dropped:
            raise CheckpointError(
                f"sink {self._info.name!r} ({self._info.path}) does not have all that was sent: its dataflow was dropped. Take a"
                " checkpoint before that, and close the Recovery"
            )
        self._publish()  # what failed after the checkpoint before, and may be there for all that
        return max(self._pending, default=-1) + 1 or None if self._ended else None

    def advance(self, time: int) -> None:
        self._boundary = time

    def resume(self) -> None:
        pass

    def committed(self, oldest: int) -> None:
        self._durable = True
        self._publish()

    def _publish(self) -> None:
        with blaming(self._info.place(), self._info.worker):
            self._commit()

    def _changes(self) -> list[Change]:
        return [change for change in self._outbox.items() if change[1]]

    def _commit(self) -> None:
        """Have the sink take the outbox, if a checkpoint holds it."""
        if self._durable:
            changes = self._changes()
            if changes:
                self._sink.commit(self._boundary, changes)
                self._written = self._boundary
            self._outbox = {}
            self._durable = False

    def close(self) -> None:
        if self._writes:
            if _WRITERS.get(id(self._sink)) is self:
                del _WRITERS[id(self._sink)]
            self._sink.close()


_WRITERS: Final[weakref.WeakValueDictionary[int, _Writer]] = weakref.WeakValueDictionary()
"""What writes each sink that is open, by its ``id``."""
