"""The messages between workers: one record for each kind.

Invariant: ``pack`` and ``unpack`` are inverse. On the wire a message is a plain tuple behind the number of its kind: progress
is sent most, and a pickle of tuples names no class.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from timely.progress import ProgressBatch
from timely.worker.graph_check import Description
from timely.worker.stall import QuietReport


class DataMessage(NamedTuple):
    """Records at a time, for a channel of a dataflow."""

    dataflow: int
    channel: int
    time: Any
    batch: Any


class ProgressMessage(NamedTuple):
    """What the sender's operators did in a dataflow."""

    dataflow: int
    batch: ProgressBatch[Any]


class GraphMessage(NamedTuple):
    """The sender has built a dataflow; ``given`` sketches what each ``to_stream`` sends, by path."""

    dataflow: int
    description: Description
    given: dict[str, str]


class GraphsDoneMessage(NamedTuple):
    """The sender builds no more dataflows than these."""

    dataflows: int


class AllGatherMessage(NamedTuple):
    """The sender's value in a round of ``all_gather``."""

    round: int
    value: Any


class RoundMessage(NamedTuple):
    """All progress that was sent before a round of ``all_gather`` has passed."""

    round: int


class QuietMessage(NamedTuple):
    """The sender has nothing to do; unless ``final``, it may still go on by itself."""

    report: QuietReport
    final: bool


class ServingMessage(NamedTuple):
    """The sender is complete, and only passes progress on."""


class EndedMessage(NamedTuple):
    """The sender is complete and will not act again."""


class AbortMessage(NamedTuple):
    """The sender has failed."""

    reason: str


class CrowdedMessage(NamedTuple):
    """The sender has more on its way than its credit, or no longer has: see ``timely.worker.peer_pressure``."""

    crowded: bool


_KINDS: Final = (
    *(ProgressMessage, DataMessage, GraphMessage, GraphsDoneMessage, AllGatherMessage),
    *(RoundMessage, QuietMessage, ServingMessage, EndedMessage, AbortMessage, CrowdedMessage),
)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_PROGRESS: Final = 0
_OTHER: Final = -1


def pack(message: Any) -> tuple[Any, ...]:
    """Return a message as a plain tuple."""
    if type(message) is ProgressMessage:
        number, batch = message
        return _PROGRESS, number, batch.sender, batch.sequence, batch.updates, batch.count
    kind = _NUMBERS.get(type(message), _OTHER)
    return (_OTHER, message) if kind == _OTHER else (kind, *message)


def unpack(packed: tuple[Any, ...]) -> Any:
    """Return the message that ``pack`` made a tuple of."""
    kind = packed[0]
    if kind == _PROGRESS:
        return ProgressMessage(packed[1], ProgressBatch(*packed[2:]))
    return packed[1] if kind == _OTHER else _KINDS[kind](*packed[1:])
