"""Vertices: what must not be done in their callbacks or outside of them, and what cannot become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely
from tests.dataflow.test_vertex import Sum
from timely import CapabilityError, GraphError, OperatorError, Product, TimestampError, Vertex


class Wrong(Vertex[int]):
    """Does ``deed`` in ``on_recv``, or when it is notified of time 1."""

    def __init__(self, deed: Callable[[Vertex[int]], object], notified: bool = False) -> None:
        self.deed = deed
        self.notified = notified

    def on_recv(self, port: int, batch: Any, time: int) -> None:
        if self.notified:
            self.notify_at(time)
        else:
            self.deed(self)

    def on_notify(self, time: int) -> None:
        self.deed(self)


def do_at_one(deed: Callable[[Vertex[int]], object], notified: bool) -> None:
    """Run a vertex called "wrong" that does something with a message, or a notification, at time 1."""

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        handle, stream = scope.new_input()
        handle.advance_to(1)
        handle.send("x")
        handle.close()
        return stream.vertex(Wrong, deed, notified, name="wrong")

    timely.example(build)


@pytest.mark.parametrize("notified", [False, True])
@pytest.mark.parametrize(
    ("deed", "kind", "match"),
    [
        (lambda v: v.send_by(0, ["y"], 0), CapabilityError, "send_by at 0 in a callback at 1: .* at or after"),
        (lambda v: v.notify_at(0), CapabilityError, "notify_at at 0 in a callback at 1: .* at or after"),
        (lambda v: v.send_by(0, ["y"], "one"), TimestampError, "send_by: 'one' is not a time of type int"),
        (lambda v: v.notify_at(None), TimestampError, "notify_at: None is not a time of type int"),
        (lambda v: v.notify_at((1, 0)), TimestampError, r"notify_at: \(1, 0\) is not a time of type int"),
        (lambda v: v.send_by(1, ["y"], 1), GraphError, "send_by on output 1, and it has 1 output"),
        (lambda v: v.send_by(-1, ["y"], 1), GraphError, "send_by on output -1, and it has 1 output"),
    ],
)
def test_what_a_vertex_must_not_do(deed: Any, kind: type[Exception], match: str, notified: bool) -> None:
    with pytest.raises(OperatorError, match="'wrong'.*/example/wrong#1.*on worker 0") as error:
        do_at_one(deed, notified)
    cause = error.value.__cause__
    assert isinstance(cause, kind)
    assert "vertex 'wrong' (/example/wrong#1)" in str(cause)
    with pytest.raises(kind, match=match):
        raise cause


def test_a_vertex_acts_in_its_callbacks_only() -> None:
    vertex = Sum()
    with pytest.raises(CapabilityError, match="Sum is not part of a dataflow; send in on_recv or on_notify"):
        vertex.send_by(0, [1], 0)
    timely.example(lambda scope: scope.to_stream([1]).vertex(vertex))
    with pytest.raises(CapabilityError, match="vertex 'Sum' .* send_by can be called in on_recv and on_notify only"):
        vertex.send_by(0, [1], 0)
    with pytest.raises(CapabilityError, match="notify_at can be called in on_recv and on_notify only"):
        vertex.notify_at(0)


def test_a_request_in_the_constructor_must_be_a_time() -> None:
    class Early(Vertex[int]):
        def __init__(self) -> None:
            self.notify_at(-1)

    with pytest.raises(OperatorError, match="notify_at: -1 is not a time of type int"):
        timely.example(lambda scope: scope.empty().vertex(Early))


def test_a_plain_tuple_is_not_sent_on_as_a_time() -> None:
    class Plain(Vertex[Any]):
        def on_recv(self, port: int, batch: Any, time: Any) -> None:
            self.send_by(0, batch, (time.outer, time.inner))

    times: list[Any] = []

    def build(scope: Any) -> Any:
        with scope.iterative() as loop:
            return scope.to_stream([1]).enter(loop).vertex(Plain).inspect_time(lambda time, _: times.append(time)).leave()

    timely.example(build)
    assert [type(time) for time in times] == [Product]


def test_callbacks_that_are_missing() -> None:
    class Deaf(Vertex[int]):
        pass

    class Half(Vertex[int]):
        def on_recv(self, port: int, batch: Any, time: int) -> None:
            self.notify_at(time)

    with pytest.raises(OperatorError, match="Deaf has inputs, so it needs on_recv"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(Deaf))
    with pytest.raises(OperatorError, match="Half calls notify_at, so it needs on_notify"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(Half))


def test_what_cannot_become_a_vertex() -> None:
    used = Sum()
    timely.example(lambda scope: scope.to_stream([1]).vertex(used))
    with pytest.raises(GraphError, match=r"vertex 'Sum' \(/example/Sum#1\) is part of a dataflow already"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(used))
    with pytest.raises(GraphError, match="must be or make a timely.Vertex, and made 7"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(lambda: 7))  # type: ignore[arg-type, return-value]
    for wrong in (-1, 101, 1.5, None):
        vertex = Sum()
        vertex.reentrancy = wrong  # type: ignore[assignment]
        with pytest.raises(GraphError, match="reentrancy = .* must be a whole number from 0 to 100"):
            timely.example(lambda scope: scope.to_stream([1]).vertex(vertex))  # noqa: B023  # called at once


class Broken(Vertex[int]):
    """A vertex that cannot be made."""

    def __init__(self, number: int) -> None:
        raise KeyError(number)


@pytest.mark.parametrize("make", [Broken, lambda number: Broken(number)])
def test_what_is_raised_while_a_vertex_is_made_names_it_and_the_line(make: Any) -> None:
    says = r"operator 'broken' \(/example/broken#1\) on worker 0 raised KeyError: 7; 'broken' was built at test_vertex_refusals"
    with pytest.raises(OperatorError, match=says) as error:
        timely.example(lambda scope: scope.to_stream([1]).vertex(make, 7, name="broken"))
    assert isinstance(error.value.__cause__, KeyError)
    assert (error.value.name, error.value.path, error.value.worker) == ("broken", "/example/broken#1", 0)


def test_a_vertex_that_cannot_be_made_goes_by_the_name_of_its_class() -> None:
    with pytest.raises(OperatorError, match=r"operator 'Broken' \(/example/Broken#1\).* raised TypeError"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(Broken))
