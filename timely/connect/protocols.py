"""``SourceConnector`` and ``SinkConnector``: what a connector implements.

The invariants: whenever a partition is read from a position, the read gives what follows it. A sink has an epoch's changes whole
or not at all, and knows the last epoch that it has. So a run that resumes from a checkpoint reads from the positions
in it, and repeats its last commit without harm. Times are whole numbers; an epoch of a sink is the time of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from timely.errors import ConnectorError

Position: TypeAlias = Any
"""Where a read begins: plain data, which a checkpoint holds, and whose ``str`` people read. ``timely serve`` holds it as JSON,
where tuples become lists."""

Change: TypeAlias = tuple[Any, int]
"""A row, a tuple of its columns, and how often it is added, or taken away."""


class ReadBatch(NamedTuple):
    """What one read returned: changes, or an Arrow batch of added rows; where the next begins; whether this run has no more.

    ``lag`` is how much lies between that and the newest position, in whatever the source counts, where it knows.
    What belongs together, such as the changes of a transaction, is in one read, so that it is in one epoch.
    """

    batch: Any
    end: Position
    over: bool = False
    lag: int | None = None


@runtime_checkable
class SourceConnector(Protocol):
    """A source with positions. Where it is ``bounded``, a run ends with what is there; the next one reads on.

    Where it has a true attribute ``keyed``, a read has pairs of a key and a row, or ``None``: each replaces the row of its key
    before, which is in the same partition.

    It is made on every worker. A partition is read by one of them, whose number follows from the partition's name.
    """

    name: str
    bounded: bool

    @property
    def schema(self) -> Any:
        """The columns of a row, for ``dd.table``: a ``pyarrow.Schema``, or a text such as ``"id long, name string"``."""

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions; asked once per epoch where new ones may come.

        A partition that was read to its end, and is not among them any more, is forgotten.
        """

    def start(self, partition: str) -> Position:
        """Return where a fresh run begins."""

    def read(self, partition: str, begin: Position, rows: int) -> ReadBatch:
        """Return what is there after ``begin`` without waiting for more: about ``rows`` rows, or none.

        ``ConnectorError`` where positions are gone: never skip them.
        """

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Allow the broker to forget what is before these positions: no run will read it again."""

    def close(self) -> None:
        """Close connections; later calls may open them again."""


class SinkConnector(Protocol):
    """A sink that remembers, with its rows, the ``history`` that they come from and the last epoch of it."""

    name: str

    def open(self, history: str, columns: Sequence[str] | None) -> int | None:
        """Return the last epoch that it has, ``None`` for none; ``columns`` are those of the rows, if they are known.

        ``history`` is a random name of the line of checkpoints. ``ConnectorError`` where it has epochs of another:
        ``check_history`` says so.
        """

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        """Apply the changes at once and note the epoch with them; a no-op where it has ``epoch`` already.

        Each row is there once, with how its count changed since the epoch before. ``ConnectorError`` where another run has opened
        the sink meanwhile.
        """

    def close(self) -> None:
        """Close connections; later calls may open them again."""


def check_history(sink: str, place: str, history: str, other: str, epoch: int | None) -> None:
    """Raise ``ConnectorError`` where a sink has epochs of another history than ``history``.

    >>> check_history("totals", "totals.db", "a1", "b2", None)
    """
    if other != history and epoch is not None:
        raise ConnectorError(
            f"sink {sink!r} in {place} has the rows of other checkpoints, up to epoch {epoch}: go on with the folder of"
            " those, or give the sink another name and empty rows"
        )
