"""Deltas: what a trace appends at one time, as rows or as columns. Operators pass them on, and cursors see them one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from timely.differential.updates.updates import Update

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Chunk
    from timely.differential.updates.int_columns import Array

T = TypeVar("T")

Row: TypeAlias = tuple[Any, Any, Any]
"""``(key, value, difference)``."""


Keys: TypeAlias = "Array | dict[Any, None]"
"""Keys, as an array where they came as columns."""


class Partner(Protocol):
    """The reader that a delta is joined with."""

    many: int
    """Updates from which on columns are faster."""

    def __len__(self) -> int:
        """Return about how many keys it has."""

    def keys(self) -> Iterator[object]:
        """Return its keys."""


class Delta(Protocol[T]):
    """Updates with the ``number`` under which a trace has appended them: each record once, no difference zero."""

    number: int

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Update]: ...

    @property
    def chunk(self) -> Chunk[T] | None:
        """All of it as columns, or ``None`` where it is rows."""

    def chunk_for(self, others: Partner) -> Chunk[T] | None:
        """Return all of it as columns, to be joined with ``others``; ``None`` where rows are faster."""

    def rows(self, pairs: bool, others: Partner | None = None) -> Iterable[Row]:
        """Return it as rows, or those of keys that ``others`` may have."""


def keys_of(delta: Delta[Any], pairs: bool) -> Keys:
    chunk = delta.chunk
    if chunk is not None:
        return chunk.keys
    return dict.fromkeys([record[0] for record, _ in delta] if pairs else [record for record, _ in delta])


class RowDelta(list[Update]):
    """A delta that is rows.

    >>> RowDelta([(("k", "v"), 1)]).rows(pairs=True), RowDelta([("k", 1)]).rows(pairs=False)
    ([('k', 'v', 1)], [('k', None, 1)])
    """

    __slots__ = ("number",)

    number: int
    chunk: None = None

    def chunk_for(self, others: Partner) -> None:
        """Return ``None``: it has no columns."""

    def rows(self, pairs: bool, others: Partner | None = None) -> list[Row]:
        if pairs:
            return [(key, value, diff) for (key, value), diff in self]
        return [(record, None, diff) for record, diff in self]

    def split(self, keys: Collection[object]) -> tuple[RowDelta, RowDelta]:
        """Return the updates of ``keys``, and the others."""
        chosen = set(keys)
        parts = RowDelta(), RowDelta()
        for update in self:
            parts[update[0][0] not in chosen].append(update)
        return parts
