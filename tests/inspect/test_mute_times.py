"""Times that raise when they are to say what they are: what shows a dataflow shows it all the same."""

from __future__ import annotations

from typing import Any

import timely
from tests.progress.mute import SAID, Mute
from timely import inspect
from timely.inspect import EventLog, snapshot


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


def test_a_picture_of_times_without_a_repr() -> None:
    _, scope, _held = running()
    seen = snapshot(scope)
    assert {time for time, _ in seen.children[0].held} == {SAID}
    assert seen.children[1].frontiers == ((SAID,),)
    picture = inspect.picture(scope)
    assert all(SAID in text for text in (picture.svg(), picture.mermaid(), picture.html()))


def test_why_a_frontier_is_at_a_time_without_a_repr() -> None:
    worker, scope, (_numbers, probe) = running()
    worker.step()
    assert str(worker.explain(probe)).startswith(f"/df/probe#2 on worker 0 is at {SAID}, because")
    assert f"may still send at {SAID}: advance it" in str(worker.explain(scope))
