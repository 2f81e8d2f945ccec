"""``SummaryRow``: how one input of a node leads to its outputs, for nodes with very many.

Most of the table ``summaries[input][output]`` of a large node is empty, and takes no memory here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from timely.errors import GraphError
from timely.order import PartialOrder
from timely.progress.antichain import Antichain
from timely.progress.timestamp import PathSummary

T = TypeVar("T", bound=PartialOrder)


class SummaryRow(Sequence[Antichain[PathSummary[T]]], Generic[T]):
    """A sequence of ``width`` antichains: those of ``entries``, and empty ones elsewhere. ``GraphError`` for an entry outside.

    >>> from timely.progress import Step
    >>> row = SummaryRow(3, {1: Antichain([Step(0)])})
    >>> list(row), row == [Antichain(), Antichain([Step(0)]), Antichain()]
    ([Antichain([]), Antichain([Step(0)]), Antichain([])], True)
    """

    __slots__ = ("_entries", "_width")

    def __init__(self, width: int, entries: Mapping[int, Antichain[PathSummary[T]]]) -> None:
        for place in entries:
            if not 0 <= place < width:
                raise GraphError(f"a SummaryRow of {width} has no place {place!r}: they are counted from 0")
        self._width = width
        self._entries = entries

    def connected(self) -> Iterable[tuple[int, Antichain[PathSummary[T]]]]:
        """Return the places that are not empty, with their antichains."""
        return [(place, antichain) for place, antichain in self._entries.items() if antichain]

    @overload
    def __getitem__(self, place: int) -> Antichain[PathSummary[T]]: ...
    @overload
    def __getitem__(self, place: slice) -> list[Antichain[PathSummary[T]]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        places = range(self._width)[place]  # counts from the end, and complains, as a list does
        return self._at(places) if isinstance(places, int) else [self._at(each) for each in places]

    def _at(self, place: int) -> Antichain[PathSummary[T]]:
        summaries = self._entries.get(place)
        return Antichain() if summaries is None else summaries

    def __len__(self) -> int:
        return self._width

    def __iter__(self) -> Iterator[Antichain[PathSummary[T]]]:
        return (self._at(place) for place in range(self._width))

    def __eq__(self, other: object, /) -> bool:
        if isinstance(other, SummaryRow):
            return len(self) == len(other) and dict(self.connected()) == dict(other.connected())
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SummaryRow({self._width}, {self._entries!r})"


def connected(row: Sequence[Antichain[PathSummary[T]]]) -> Iterable[tuple[int, Antichain[PathSummary[T]]]]:
    """Return the places of any row that are not empty, with their antichains; a ``SummaryRow`` costs time for these only.

    >>> from timely.progress import Step
    >>> dict(connected([Antichain(), Antichain([Step(0)])]))
    {1: Antichain([Step(0)])}
    """
    if isinstance(row, SummaryRow):
        return row.connected()
    return [(place, antichain) for place, antichain in enumerate(row) if len(antichain)]
