"""``read``: the operator of a source. Its state is the position of each partition at the checkpoint's time.

Epochs are cut by the clock: each lasts ``every`` seconds since the run began. What is in which does not matter, since no sink
has an epoch that no checkpoint holds. After a checkpoint all workers count from its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any

from timely.connect.protocols import Change, Position, SourceConnector
from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream, check_scope, route
from timely.errors import CheckpointError, ConfigurationError, GraphError
from timely.operators.generic import source as source_of
from timely.operators.keyed.state_machines import state_machine
from timely.operators.state_registration import resume_time


def read(
    scope: ScopeBuilder[int], source: SourceConnector, *, every: float = 0.1, rows: int = 4096, name: str | None = None
) -> Stream[int, Any]:
    """Return the stream of a source's changes: ``scope.read(source)``."""
    name = name or f"read {source.name}"
    check_whole_times(scope, name)
    if not isinstance(every, int | float) or not every >= 0 or not isinstance(rows, int) or rows < 1:
        raise ConfigurationError(f"{name}: every={every!r} is a number of seconds, and rows={rows!r} a number of at least 1")
    stream = source_of(scope, name, lambda capability, info: _Reader(scope, source, capability, info, every, rows).logic)
    return state_machine(stream, replace, name=f"{name} by key") if getattr(source, "keyed", False) else stream


def replace(key: Any, row: Any, before: Any) -> tuple[Any, list[Change]]:
    """Return the row of a key, and what changes where it replaces the one before."""
    return row, [*([] if before is None else [(before, -1)]), *([] if row is None else [(row, 1)])]


def positions_text(positions: Mapping[str, Position], over: Collection[str], lags: Mapping[str, int | None]) -> str:
    """Return where a source is: the positions of up to three partitions that it goes on reading, and how much is left.

    >>> positions_text({"a": 7, "b": 9, "c": 3}, {"c"}, {"a": 2, "b": None})
    'a at 7, b at 9, 1 of 3 partitions read, 2 behind'
    """
    open_ones = [partition for partition in positions if partition not in over]
    texts = [f"{partition} at {str(positions[partition])[:80]}" for partition in open_ones[:3]]
    if len(texts) < len(positions):
        texts.append(f"{len(positions) - len(open_ones)} of {len(positions)} partitions read")
    if lag := sum(each or 0 for each in lags.values()):
        texts.append(f"{lag} behind")
    return ", ".join(texts)


def check_whole_times(scope: ScopeBuilder[Any], name: str) -> None:
    """Raise ``GraphError`` in a nested scope, or where times are no whole numbers: a checkpoint is at one of the dataflow's."""
    check_scope(scope, name)
    if scope.parent is not None or scope.time is not int:
        raise GraphError(
            f"{name} in scope {scope.path!r}: sources and sinks are in a dataflow's own scope, with times of type int"
        )


class _Reader:
    """The operator of a source on one worker, which reads the partitions that are its own."""

    def __init__(
        self,
        scope: ScopeBuilder[int],
        source: SourceConnector,
        capability: Capability[int],
        info: OperatorInfo,
        every: float,
        rows: int,
    ) -> None:
        self._source = source
        self._capability = capability
        self._info = info
        self._every = every
        self._rows = rows
        self._positions: dict[str, Position] = {}
        self._over: set[str] = set()
        self._lags: dict[str, int | None] = {}
        self._names: dict[str, None] = {}  # of partitions, in the order of the source, when it was asked
        self._stopped = self._dropped = False
        self._sent = False  # at the time of the capability
        self._asked = False
        self._wakes = 0.0  # when the last timer runs this again
        self._boundary = 0
        begins = resume_time(scope, info)
        if begins is not None:
            capability.downgrade(begins.first)
        info.register_state(self._save, self._load, at_rest=True, follower=self)
        self._checkpoints = [(capability.time, dict(self._positions))]
        self._restart_clock()
        info.at_end(self._end)
        info.activator.wait_for_peers()
        info.describe(lambda: positions_text(self._positions, self._over, self._lags))

    def _restart_clock(self) -> None:
        self._base, self._began = self._capability.time, monotonic()

    # -- reading -------------------------------------------------------------------------------------------------------

    def logic(self, output: OutputPort[int]) -> None:
        if self._stopped or not self._capability.held:
            return
        self._advance()
        rows, busy = self._rows, False
        for partition in self._partitions():
            batch, end, over, self._lags[partition] = self._source.read(partition, self._positions[partition], self._rows)
            busy = busy or over or len(batch) > 0
            del self._positions[partition]
            self._positions[partition] = end  # at the end of the others, which are read before it is read again
            if over:
                self._over.add(partition)
            if len(batch):
                self._sent = True
                output.session(self._capability).give_batch(batch)
                rows -= len(batch)
                if rows <= 0:
                    break
        if self._source.bounded and self._over >= self._positions.keys():
            self._capability.drop()
        elif busy or not self._every:
            self._info.activator.activate()
        elif (now := monotonic()) >= self._wakes - self._every / 2:  # else a timer is under way
            self._wakes = now + self._every
            self._info.activator.activate_after(self._every)

    def _advance(self) -> None:
        """Begin the epoch that is due."""
        if self._every:
            due = self._base + int((monotonic() - self._began) / self._every)
        else:
            due = self._capability.time + self._sent
        if due > self._capability.time or not self._every:
            self._capability.downgrade(due)
            self._sent = False
            self._asked = self._asked and self._source.bounded

    def _partitions(self) -> Iterator[str]:
        """Yield the partitions that this worker is to read."""
        if not self._asked:
            self._asked = True
            self._names = dict.fromkeys(self._source.partitions())
            for partition in self._names:
                if partition not in self._positions and route(partition) % self._info.peers == self._info.worker:
                    self._positions[partition] = self._source.start(partition)
        return (partition for partition in list(self._positions) if partition not in self._over)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save(self) -> Iterator[tuple[int, tuple[str, Position]]]:
        for partition in self._over - self._names.keys():
            self._over.remove(partition)
            del self._positions[partition], self._lags[partition]
        for partition, position in self._positions.items():
            yield route(partition), (partition, position)

    def _load(self, items: Iterable[tuple[str, Position]]) -> None:
        self._positions.update(items)

    def _end(self) -> None:
        self._dropped = self._capability.held
        if self._info.state.registry is None:
            self._source.close()

    def stop(self) -> int:
        if self._dropped:
            raise CheckpointError(
                f"source {self._info.name!r} ({self._info.path}) has read more than the sinks of its dataflow have, which was"
                " dropped: take a checkpoint before that, and close the Recovery"
            )
        self._stopped = True
        return self._capability.time + self._sent  # where it is over, too: what comes later is not sent before

    def advance(self, time: int) -> None:
        self._boundary = time
        if self._capability.held:
            self._capability.downgrade(time)
            self._sent = False

    def resume(self) -> None:
        if self._stopped:
            self._stopped = False
            self._restart_clock()
            self._info.activator.activate()

    def committed(self, oldest: int) -> None:
        self._checkpoints.append((self._boundary, dict(self._positions)))
        while len(self._checkpoints) > 1 and self._checkpoints[1][0] <= oldest:
            self._checkpoints.pop(0)
        time, positions = self._checkpoints[0]
        if time <= oldest and positions:
            self._source.acknowledge(positions)

    def close(self) -> None:
        self._capability.drop()
        self._source.close()
