"""What a worker's event log is made of: one small record for each thing that happened, with when and where.

``at`` is in seconds since the log was opened, by the worker's own clock, and never goes back. Operators are named by their paths,
which are the same on every worker. Times of the dataflow are given as they are. Events can be pickled where these can.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs


@attrs.frozen
class OperatorBuilt:
    """An operator or a nested scope was built: its ports, and the line of the program that did it."""

    at: float
    worker: int
    path: str
    name: str
    inputs: int
    outputs: int
    built_at: str


@attrs.frozen
class ChannelBuilt:
    """A stream leads from an output of ``source`` to an input of ``target``, ``(path, port)`` both; maybe to other workers."""

    at: float
    worker: int
    source: tuple[str, int]
    target: tuple[str, int]
    exchanged: bool


@attrs.frozen
class Scheduled:
    """An operator has run once, for so many seconds; those of operators that it ran in the middle are in it."""

    at: float
    worker: int
    path: str
    seconds: float


@attrs.frozen
class Sent:
    """An operator has sent ``records`` records at ``time`` to an input of another, on any worker."""

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
    """An operator has ``change`` capabilities more, or fewer, for ``time`` on its output ``port``."""

    at: float
    worker: int
    path: str
    port: int
    time: Any
    change: int


@attrs.frozen
class Notified:
    """An operator was told that ``time`` is complete."""

    at: float
    worker: int
    path: str
    time: Any


@attrs.frozen
class ProgressTold:
    """The worker told its peers what it did in a dataflow, in a batch of so many updates."""

    at: float
    worker: int
    path: str
    updates: int


@attrs.frozen
class ProgressHeard:
    """The worker took in what ``sender`` did in a dataflow."""

    at: float
    worker: int
    path: str
    sender: int
    updates: int


@attrs.frozen
class Waited:
    """The worker had nothing to do, for so many seconds."""

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
    OperatorBuilt | ChannelBuilt | Scheduled | Sent | Read | Held | Notified | ProgressTold | ProgressHeard | Waited | Ended
)
