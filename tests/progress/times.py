"""Timestamp types of one's own, through the protocols alone, for tests: total, partial, and mute ones; and a graph of one
input."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from timely.progress import GraphBuilder, Tracker

M = TypeVar("M", bound="Moment")


class Moment:
    """A number with nothing but what the protocol asks; ``TotalMoment`` says besides that it is totally ordered."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def __le__(self, other: Self, /) -> bool:
        return self.at <= other.at

    def __lt__(self, other: Self, /) -> bool:
        return self.at < other.at

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Moment) and other.at == self.at

    def __hash__(self) -> int:
        return hash(self.at)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.at})"

    @classmethod
    def minimum(cls) -> Self:
        return cls(0)

    @classmethod
    def identity(cls) -> Shift:
        return Shift(0)


class TotalMoment(Moment):
    __slots__ = ()

    @classmethod
    def is_total(cls) -> bool:
        return True


class Shift:
    """Move a moment by ``by``, which may be back, but never to before ``floor``."""

    __slots__ = ("by", "floor")

    def __init__(self, by: int, floor: int = 0) -> None:
        self.by = by
        self.floor = max(floor, by, 0)  # where 0 goes: any lower floor means the same

    def results_in(self, time: M, /) -> M | None:
        return type(time)(max(self.floor, time.at + self.by))

    def followed_by(self, other: Shift, /) -> Shift | None:
        return Shift(self.by + other.by, max(other.floor, self.floor + other.by))

    def __le__(self, other: Shift, /) -> bool:
        return self.by <= other.by and self.floor <= other.floor

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Shift) and (other.by, other.floor) == (self.by, self.floor)

    def __hash__(self) -> int:
        return hash((self.by, self.floor))

    def __repr__(self) -> str:
        return f"Shift({self.by}, {self.floor})"


class Clock:
    """A vector of counters, ordered coordinate by coordinate, of which nothing else is offered."""

    __slots__ = ("ticks",)

    def __init__(self, *ticks: int) -> None:
        self.ticks = ticks

    def __le__(self, other: Self, /) -> bool:
        return all(mine <= theirs for mine, theirs in zip(self.ticks, other.ticks))

    def __lt__(self, other: Self, /) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Clock) and other.ticks == self.ticks

    def __hash__(self) -> int:
        return hash(self.ticks)

    def __repr__(self) -> str:
        return f"Clock{self.ticks}"

    @classmethod
    def minimum(cls) -> Self:
        return cls(0, 0, 0)

    @classmethod
    def identity(cls) -> Tick:
        return Tick(0, 0, 0)


class Tick:
    """Advance each counter of a clock by a number of its own."""

    __slots__ = ("by",)

    def __init__(self, *by: int) -> None:
        self.by = by

    def results_in(self, time: Clock, /) -> Clock | None:
        return Clock(*(tick + by for tick, by in zip(time.ticks, self.by)))

    def followed_by(self, other: Tick, /) -> Tick | None:
        return Tick(*(mine + theirs for mine, theirs in zip(self.by, other.by)))

    def __le__(self, other: Tick, /) -> bool:
        return all(mine <= theirs for mine, theirs in zip(self.by, other.by))

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Tick) and other.by == self.by

    def __hash__(self) -> int:
        return hash(self.by)

    def __repr__(self) -> str:
        return f"Tick{self.by}"


def one_input(time: Any) -> Tracker[Any]:
    """The tracker of a graph that is one node with one input."""
    graph: GraphBuilder[Any] = GraphBuilder(time)
    graph.add_node(0, 1, 0, [()])
    return graph.build()


SAID = "a Mute, which raises RuntimeError when printed"


class Mute(Moment):
    """A time that cannot say what it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("mute")
