"""The trace events of a worker's event log.

``at`` is in seconds since the log was opened, by the worker's clock, and never goes back. Operators are named by their paths,
which are the same on every worker. ``time`` is a time of the dataflow. Events can be pickled if their times can.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs


@attrs.frozen
class _Traced:
    at: float
    worker: int


@attrs.frozen
class _TracedAt(_Traced):
    path: str


@attrs.frozen
class OperatorBuilt(_TracedAt):
    """An operator or a nested scope was built, by the line ``built_at`` of the program."""

    name: str
    inputs: int
    outputs: int
    built_at: str


@attrs.frozen
class ChannelBuilt(_Traced):
    """A stream connects ``source`` to ``target``, both ``(path, port)``; ``exchanged`` if records may go to other workers."""

    source: tuple[str, int]
    target: tuple[str, int]
    exchanged: bool


@attrs.frozen
class Scheduled(_TracedAt):
    """An operator has run once; ``seconds`` include the operators that it ran inside its own run."""

    seconds: float


@attrs.frozen
class RecordsSent(_TracedAt):
    """An operator has sent ``records`` records at ``time`` to the input ``target``, on any worker."""

    target: tuple[str, int]
    time: Any
    records: int


@attrs.frozen
class Read(_TracedAt):
    """An operator has read ``records`` records at ``time`` from its input ``port``."""

    port: int
    time: Any
    records: int


@attrs.frozen
class Held(_TracedAt):
    """An operator holds ``change`` more capabilities for ``time`` at its output ``port``; negative if fewer."""

    port: int
    time: Any
    change: int


@attrs.frozen
class Notified(_TracedAt):
    """An operator was notified that ``time`` is complete."""

    time: Any


@attrs.frozen
class ProgressSent(_TracedAt):
    """The worker sent its peers a progress batch of a dataflow, of ``updates`` updates."""

    updates: int


@attrs.frozen
class ProgressReceived(_TracedAt):
    """The worker received a progress batch of a dataflow from ``sender``."""

    sender: int
    updates: int


@attrs.frozen
class Waited(_Traced):
    """The worker was idle for so many seconds."""

    seconds: float


@attrs.frozen
class Ended(_TracedAt):
    """A dataflow is complete on this worker, or was dropped."""


Event: TypeAlias = (
    OperatorBuilt
    | ChannelBuilt
    | Scheduled
    | RecordsSent
    | Read
    | Held
    | Notified
    | ProgressSent
    | ProgressReceived
    | Waited
    | Ended
)
