"""``Holds``: at which times a trace may still be read, and so how far its history may be compacted.

``since`` is the lower envelope of ``upper()`` and of what readers hold. A time is advanced to one that compares alike with every
time at or after ``since``. Invariant: ``since`` never goes back, also where a new reader holds an earlier time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from timely.differential.trace.entries import Entry, compacted
from timely.order import PartialOrder
from timely.progress import Lattice

T = TypeVar("T", bound=PartialOrder)

Hold: TypeAlias = Callable[[], Sequence[Any]]
"""Returns the frontier of the times that may still be read."""


Move: TypeAlias = Callable[[Any], Any]
"""Returns a time as it was last advanced, of whatever type the times of a trace are."""


class Advancing(Protocol):
    """A part of a trace that has times."""

    def advance(self, moved: Move) -> None:
        """Replace each time by ``moved(time)``."""


class Holds(Generic[T]):
    """What readers of one trace hold, and its times."""

    __slots__ = (
        "_advanced",
        "_many_times",
        "_operators",
        "_readers",
        "lattice",
        "parts",
        "patience",
        "reached",
        "reader_advanced",
        "reader_released",
        "times",
        "upper",
    )

    def __init__(self, lattice: Lattice[T], upper: Hold, patience: int) -> None:
        self.lattice = lattice
        self.upper = upper
        self.times: dict[T, None] = {}  # those of all entries, and some more
        self.parts: list[Advancing] = []  # their times advance with `since`
        self.reached: list[T] = [lattice.domain.minimum]  # the `since` that times were last advanced by
        self.reader_advanced = False  # since entries of rows were last compacted
        self.reader_released = False  # since then
        self._operators: list[Hold] = []
        self._readers: list[Hold] = []  # of the program
        self._advanced: dict[T, T] = {}
        self.patience = patience
        self._many_times = patience

    def add(self, hold: Hold, reads: bool = False) -> None:
        """Keep history for the times at or after ``hold()``, until ``release(hold)``.

        ``reads``: the program holds it, to read, and no operator does.
        """
        (self._readers if reads else self._operators).append(hold)

    def release(self, hold: Hold) -> None:
        """Undo ``add``."""
        self._operators = [other for other in self._operators if other is not hold]
        self._readers = [other for other in self._readers if other is not hold]

    @property
    def since(self) -> list[T]:
        """Where history begins: at its end once nothing is held."""
        holds = (self.upper, *self._operators, *self._readers)
        held = self.lattice.lower_envelope(time for hold in holds for time in hold())
        if not held:
            held = [reduce(self.lattice.lub, self.times, self.reached[0])]
        return self.lattice.upper_envelope(self.reached, held)

    def at_rest(self) -> list[T]:
        """Return the ``since`` of a checkpoint: of what operators may still read, whatever handles hold."""
        held = self.lattice.lower_envelope(time for hold in (self.upper, *self._operators) for time in hold())
        return self.lattice.upper_envelope(self.reached, held) or self.reached

    def resume(self, since: Iterable[T]) -> None:
        """Begin at ``since``, where a checkpoint has compacted what is loaded."""
        self.reached = self.lattice.upper_envelope(self.reached, since)

    def moves(self) -> bool:
        """Return whether ``since`` has moved since times were last advanced."""
        return self.since != self.reached

    def advance(self) -> None:
        """Advance the times of all parts by ``since``."""
        since = self.since
        if since != self.reached:
            self.reached = since
            self._advanced.clear()
            for part in self.parts:
                part.advance(self.moved)
            if len(self.times) >= self._many_times:
                self.times = dict.fromkeys(self.lattice.advance(time, since) for time in self.times)
                self._many_times = max(self.patience, 2 * len(self.times))

    def moved(self, time: T) -> T:
        """Return ``time`` as it was last advanced; equal times are one object."""
        moved = self._advanced.get(time)
        if moved is None:
            moved = self.lattice.advance(time, self.reached)
            moved = self._advanced[time] = self._advanced.setdefault(moved, moved)
        return moved

    def compacted(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return entries at advanced times, equal ones added up."""
        return compacted(entries, self.lattice, self.reached, self._advanced)
