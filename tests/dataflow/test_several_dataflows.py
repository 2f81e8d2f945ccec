"""Several dataflows on one worker: added and dropped while others run, sharing recorded streams, and freeing their state."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import timely
from timely import EventLink, GraphError, StalledError


class State:
    """Something that a weak reference can follow."""


class Batch(list[int]):
    """A container that a weak reference can follow."""


def with_state(state: State) -> Any:
    """The constructor of an operator that holds something, and all of its input."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        held: list[Any] = [state]

        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                held.append((cap.retain(), batch))

        return logic

    return constructor


@pytest.mark.parametrize("dropped", ["writer", "reader"])
def test_dropping_one_side_of_a_link_leaves_the_other(dropped: str) -> None:
    worker = timely.Worker()
    link: EventLink[int] = EventLink()
    with worker.dataflow(int, name="writer") as writer:
        handle, stream = writer.new_input()
        stream.capture_into(link)
    with worker.dataflow(int, name="reader") as reader:
        seen = scope_seen = reader.replay(link).capture()
    with worker.dataflow(int, name="second reader") as second:
        other = second.replay(link).capture()
    handle.send(1)
    handle.advance_to(1)
    for _ in range(3):
        worker.step()
    worker.drop_dataflow(writer if dropped == "writer" else reader)
    handle.send(2)
    handle.close()
    if dropped == "writer":
        with pytest.raises(StalledError, match=r"a capability of /reader/replay#0 at 1"):
            worker.run()
        assert seen.extract() == other.extract() == [(0, [1])]
        worker.drop_dataflow(reader)
        worker.drop_dataflow(second)
        worker.run()
    else:
        worker.run()
        assert scope_seen.extract() == [(0, [1])]
        assert other.extract() == [(0, [1]), (1, [2])]


def test_a_dropped_reader_is_not_referenced_by_the_link() -> None:
    worker = timely.Worker()
    link: EventLink[int] = EventLink()
    state = State()
    with worker.dataflow(int, name="writer") as writer:
        handle, stream = writer.new_input()
        stream.capture_into(link)
    with worker.dataflow(int, name="reader") as reader:
        reader.replay(link).unary(timely.Pipeline, "keep", with_state(state)).probe()
    followed: list[weakref.ref[Any]] = [weakref.ref(state), weakref.ref(reader)]
    if not timely.compiled:  # an instance of a compiled class takes no weak references
        followed.append(weakref.ref(reader.subgraph.children[0].scope))
    for _ in range(3):
        worker.step()  # the reader waits for the link by now
    worker.drop_dataflow(reader)
    del reader, state
    gc.collect()
    assert [ref() for ref in followed] == [None] * len(followed)
    handle.close()
    worker.run()
    assert link.extract() == []


@pytest.mark.parametrize("held", ["handle", "scope", "probe", "stream", "nothing"])
def test_dropping_frees_state_whatever_is_still_held(held: str) -> None:
    worker = timely.Worker()
    state, batch, queued = State(), Batch([1, 2]), Batch([3])
    followed: list[weakref.ref[Any]] = [weakref.ref(state), weakref.ref(batch), weakref.ref(queued)]
    with worker.dataflow(int, name="unwanted") as scope:
        handle, stream = scope.new_input()
        with scope.iterative() as loop:
            inner = stream.enter(loop).unary(timely.Pipeline, "keep", with_state(state)).leave()
        stalled, waiting = scope.new_input()
        waiting.unary(timely.Pipeline, "never reads", lambda capability, info: lambda input, output: None)
        probe = inner.probe()
    handle.send_batch(batch)
    stalled.send_batch(queued)
    worker.step()
    del state, batch, queued
    gc.collect()
    assert all(ref() is not None for ref in followed)
    worker.drop_dataflow(scope)
    keep = {"handle": handle, "scope": scope, "probe": probe, "stream": stream, "nothing": None}[held]
    del scope, handle, stream, loop, inner, probe, stalled, waiting
    gc.collect()
    assert [ref() for ref in followed] == [None, None, None]
    assert worker.dataflows == []
    assert not worker.step()
    del keep


@pytest.mark.parametrize("workers", [2, 3])
def test_messages_in_flight_to_a_dropped_dataflow_are_freed(workers: int) -> None:
    def program(worker: timely.Worker) -> list[bool]:
        sent = [Batch([worker.index] * 3) for _ in range(4)]
        followed = [weakref.ref(batch) for batch in sent]
        with worker.dataflow(int, name="unwanted") as scope:
            handle, stream = scope.new_input()
            stream.exchange(lambda x: x + 1).unary(timely.Pipeline, "keep", with_state(State()))
        with worker.dataflow(int, name="wanted") as wanted:
            other, stream = wanted.new_input()
            probe = stream.exchange(lambda x: x).probe()
        for epoch, batch in enumerate(sent):
            handle.send_batch(batch)
            handle.advance_to(epoch + 1)
            if epoch < 2 + worker.index % 2:
                worker.step()
        del batch
        worker.drop_dataflow(scope)
        sent.clear()
        for epoch in range(3):
            other.send(epoch)
            other.advance_to(epoch + 1)
            worker.step_while(lambda epoch=epoch: probe.less_than(epoch + 1))  # type: ignore[misc]
        other.close()
        worker.run()
        del handle, scope
        gc.collect()
        return [ref() is None for ref in followed]

    assert timely.execute(program, workers=workers) == [[True] * 4] * workers


def test_a_dataflow_may_be_dropped_by_one_of_its_own_operators() -> None:
    worker = timely.Worker()
    scopes: list[Any] = []
    with worker.dataflow(int, name="short") as scope:
        handle, stream = scope.new_input()
        scopes.append(scope)
        seen = stream.inspect(lambda x: worker.drop_dataflow(scopes.pop()) if x == 2 else None).capture()
    with worker.dataflow(int, name="long") as other:
        lasting, stream = other.new_input()
        also = stream.capture()
    for i in range(4):
        handle.send(i)
        lasting.send(i)
        worker.step()
    lasting.close()
    worker.run()
    assert worker.dataflows == []
    assert [x for _, batch in seen.messages for x in batch] == [0, 1]
    assert also.extract() == [(0, [0, 1, 2, 3])]


def test_an_operator_that_drops_another_dataflow_and_one_that_builds_one() -> None:
    worker = timely.Worker()
    built: list[Any] = []
    with worker.dataflow(int, name="unwanted") as unwanted:
        unwanted_handle, _ = unwanted.new_input()

    def act(record: int) -> None:
        worker.drop_dataflow(unwanted)
        with worker.dataflow(int, name="new") as scope:
            built.append(scope.to_stream([record]).capture())

    with worker.dataflow(int, name="manager") as scope:
        scope.to_stream([7]).inspect(act)
    worker.run()
    assert [capture.extract() for capture in built] == [[(0, [7])]]
    unwanted_handle.close()


def test_what_cannot_be_dropped() -> None:
    one, other = timely.Worker(), timely.Worker()
    with one.dataflow(name="outer") as scope:
        handle, stream = scope.new_input()
        with scope.region("inner") as inner:
            stream.enter(inner).leave()
        with pytest.raises(GraphError, match=r"'/inner.*'|/outer/inner#1.*drop the dataflow '/outer'"):
            one.drop_dataflow(inner)
        with pytest.raises(GraphError, match="'/outer' is not built yet: drop it after its with-block"):
            one.drop_dataflow(scope)
    with pytest.raises(GraphError, match="'/outer' is not one of worker 0"):
        other.drop_dataflow(scope)
    nothing: Any
    for nothing in ("outer", 0, None, handle):
        with pytest.raises(GraphError, match="drop_dataflow takes the scope that `with worker.dataflow.* gave, not "):
            one.drop_dataflow(nothing)
    one.drop_dataflow(scope)
    one.drop_dataflow(scope)  # once more does nothing more
    assert not one.step()
    handle.close()
