"""The trace events of a worker's event log.

``at`` is in seconds since the log was opened, by the worker's clock, and never goes back. Operators are named by their paths,
which are the same on every worker. ``time`` is a time of the dataflow. Events can be pickled if their times can.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs


@attrs.frozen
class OperatorBuilt:
    """An operator or a nested scope was built, by the line ``built_at`` of the program."""

    at: float
    worker: int
    path: str
    name: str
    inputs: int
    outputs: int
    built_at: str


@attrs.frozen
class ChannelBuilt:
    """A stream connects ``source`` to ``target``, both ``(path, port)``; ``exchanged`` if records may go to other workers."""

    at: float
    worker: int
    source: tuple[str, int]
    target: tuple[str, int]
    exchanged: bool


@attrs.frozen
class Scheduled:
    """An operator has run once; ``seconds`` include the operators that it ran inside its own run."""

    at: float
    worker: int
    path: str
    seconds: float


@attrs.frozen
class RecordsSent:
    """An operator has sent ``records`` records at ``time`` to the input ``target``, on any worker."""

    at: float
    worker: int
    path: str
    target: tuple[str, int]
    time: Any
    records: int


@attrs.frozen
class Read:
    """An operator has read ``records`` records at ``time`` from its input ``port``."""

    at: float
    worker: int
    path: str
    port: int
    time: Any
    records: int


@attrs.frozen
class Held:
    """An operator holds ``change`` more capabilities for ``time`` at its output ``port``; negative if fewer."""

    at: float
    worker: int
    path: str
    port: int
    time: Any
    change: int


@attrs.frozen
class Notified:
    """An operator was notified that ``time`` is complete."""

    at: float
    worker: int
    path: str
    time: Any


@attrs.frozen
class ProgressSent:
    """The worker sent its peers a progress batch of a dataflow, of ``updates`` updates."""

    at: float
    worker: int
    path: str
    updates: int


@attrs.frozen
class ProgressReceived:
    """The worker received a progress batch of a dataflow from ``sender``."""

    at: float
    worker: int
    path: str
    sender: int
    updates: int


@attrs.frozen
class Waited:
    """The worker was idle for so many seconds."""

    at: float
    worker: int
    seconds: float


@attrs.frozen
class Ended:
    """A dataflow is complete on this worker, or was dropped."""

    at: float
    worker: int
    path: str


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
