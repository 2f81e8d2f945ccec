"""Times that raise when they are to say what they are: what shows a dataflow shows it all the same."""

from __future__ import annotations

from typing import Any

import timely
from timely import inspect
from timely.inspect import EventLog, snapshot

SAID = "a Mute, which raises RuntimeError when it is to say what it is"


class Mute:
    """A time that cannot say what it is."""

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def __le__(self, other: Mute) -> bool:
        return self.n <= other.n

    def __lt__(self, other: Mute) -> bool:
        return self.n < other.n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mute) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        raise RuntimeError("mute")

    @classmethod
    def minimum(cls) -> Mute:
        return cls()

    @classmethod
    def identity(cls) -> Later:
        return Later(0)


class Later:
    """The summary of ``Mute``: so many later."""

    def __init__(self, n: int) -> None:
        self.n = n

    def results_in(self, time: Mute, /) -> Mute | None:
        return Mute(time.n + self.n)

    def followed_by(self, other: Later, /) -> Later | None:
        return Later(self.n + other.n)

    def __le__(self, other: Later, /) -> bool:
        return self.n <= other.n

    def __lt__(self, other: Later, /) -> bool:
        return self.n < other.n

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Later) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)


def running() -> tuple[timely.Worker, Any, Any]:
    """A worker that somebody looks on at, and a dataflow that holds a time."""
    worker = timely.Worker()
    EventLog(worker)
    with worker.dataflow(Mute, name="df") as scope:
        numbers, stream = scope.new_input()
        probe = stream.map(str).probe()
    numbers.send(1)
    numbers.advance_to(Mute(1))
    return worker, scope, (numbers, probe)


def test_a_picture_of_times_that_cannot_say_what_they_are() -> None:
    _, scope, _held = running()
    seen = snapshot(scope)
    assert {time for time, _ in seen.children[0].held} == {SAID}
    assert seen.children[1].frontiers == ((SAID,),)
    picture = inspect.picture(scope)
    assert all(SAID in text for text in (picture.svg(), picture.mermaid(), picture.html()))


def test_why_a_frontier_is_at_a_time_that_cannot_say_what_it_is() -> None:
    worker, scope, (_numbers, probe) = running()
    worker.step()
    assert str(worker.explain(probe)).startswith(f"/df/probe#2 on worker 0 is at {SAID}, because")
    assert f"may still send at {SAID}: advance it" in str(worker.explain(scope))
