"""Vertices: the two callbacks, what may be done in them and what is refused, with many ports, in loops, on several workers.

White box: ``pending``, which ``Vertex.checkpoint`` refers to, has the name of a module and is not exported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import attrs
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.dataflow.epochs import feed, simulated
from timely import CapabilityError, Exchange, GraphError, OperatorError, Product, TimestampError, Vertex
from timely.operators.vertices import pending
from timely.testing import simulate

WORKERS = st.integers(1, 3)
SEEDS = st.integers(0, 1000)
EPOCHS = st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=4)


class Sum(Vertex[int]):
    """Adds up what comes in each epoch, and sends it once."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}

    def on_recv(self, port: int, batch: list[int], time: int) -> None:
        if time not in self.sums:
            self.notify_at(time)
        self.sums[time] = self.sums.get(time, 0) + sum(batch)

    def on_notify(self, time: int) -> None:
        self.send_by(0, [self.sums.pop(time)], time)


@given(workers=WORKERS, epochs=EPOCHS, seed=SEEDS)
def test_a_sum_sent_on_notification(workers: int, epochs: list[list[int]], seed: int) -> None:
    sums = simulated(lambda scope, stream: stream.vertex(Sum, pact=Exchange(lambda x: 0)), epochs, workers, seed)
    assert sums == {epoch: [sum(records)] for epoch, records in enumerate(epochs) if records}


class Witness(Vertex[Any]):
    """Asks for every time that comes and for later ones, and checks each notification against earlier ones."""

    def __init__(self, later: Callable[[Any], list[Any]]) -> None:
        self.later = later
        self.asked: set[Any] = set()
        self.notified: list[Any] = []

    def on_recv(self, port: int, batch: list[Any], time: Any) -> None:
        assert not any(time <= complete for complete in self.notified), (time, self.notified)
        for wanted in (time, *self.later(time)):
            self.notify_at(wanted)
            self.notify_at(wanted)
            self.asked.add(wanted)
        self.send_by(0, batch, time)

    def on_notify(self, time: Any) -> None:
        assert time in self.asked
        assert not any(time <= complete for complete in self.notified), (time, self.notified)
        self.notified.append(time)


@given(workers=WORKERS, epochs=EPOCHS, seed=SEEDS)
def test_notifications_in_a_loop(workers: int, epochs: list[list[int]], seed: int) -> None:
    witnesses: list[Witness] = []

    def build(scope: Any, stream: Any) -> Any:
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            witness = Witness(lambda time: [Product(time.outer, time.inner + 1), Product(time.outer + 1, time.inner)])
            witnesses.append(witness)
            seen = stream.enter(loop).vertex(witness, others=[(again, Exchange(lambda x: x))])
            seen.filter(lambda x: x > 0).map(lambda x: x // 2).connect_loop(handle)
            return seen.leave()

    simulated(build, epochs, workers, seed)
    for witness in witnesses:
        assert set(witness.notified) == witness.asked
        assert len(witness.notified) == len(witness.asked)


class Smallest(Vertex[Product[int, int]]):
    """The smallest label received at each node: input 0 has edges, input 1 labels; output 0 has labels for the neighbours."""

    def __init__(self) -> None:
        self.labels: dict[int, dict[int, int]] = defaultdict(dict)
        self.edges: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def on_recv(self, port: int, batch: list[tuple[int, int]], time: Product[int, int]) -> None:
        labels, edges = self.labels[time.outer], self.edges[time.outer]
        for node, other in batch:
            if port == 0:
                edges[node].append(other)
                known = labels.setdefault(node, node)
                self.send_by(0, [(other, known)], time)
            elif other < labels.setdefault(node, node):
                labels[node] = other
                self.send_by(0, [(neighbour, other) for neighbour in edges[node]], time)
        self.notify_at(Product(time.outer, 1000))  # long after the last round

    def on_notify(self, time: Product[int, int]) -> None:
        self.send_by(1, list(self.labels.pop(time.outer).items()), time)


@pytest.mark.parametrize("reentrancy", [0, 3])
@given(
    workers=WORKERS,
    edges=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12), min_size=1, max_size=2),
    seed=SEEDS,
)
def test_components_by_a_vertex_in_a_loop(workers: int, reentrancy: int, edges: list[list[tuple[int, int]]], seed: int) -> None:
    def build(scope: Any, stream: Any) -> Any:
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            key = Exchange(lambda pair: pair[0])
            vertex = Smallest()
            vertex.reentrancy = reentrancy
            both = stream.flat_map(lambda edge: [edge, edge[::-1]]).enter(loop)
            offers, labels = timely.operators.vertex(loop, vertex, inputs=[(both, key), (again, key)], outputs=2)
            offers.connect_loop(handle)
            return labels.leave()

    expected = {}
    for epoch, pairs in enumerate(edges):
        if pairs:
            components = nx.connected_components(nx.Graph(pairs))
            expected[epoch] = sorted((node, min(component)) for component in components for node in component)
    assert simulated(build, edges, workers, seed) == expected


class Counter(Vertex[int]):
    """A source: it has no inputs, and sends on each notification that it has asked for."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.notify_at(2)

    def on_notify(self, time: int) -> None:
        self.send_by(0, [time], time)
        if time < self.last:
            self.notify_at(time + 1)


def test_a_vertex_without_inputs_is_a_source() -> None:
    assert timely.example(lambda scope: timely.operators.vertex(scope, Counter, 5)[0]) == [(n, [n]) for n in range(2, 6)]


def test_a_source_lets_others_run_between_its_notifications() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        probe = timely.operators.vertex(scope, Counter, 50)[0].probe()
    fronts = set()
    while worker.step():
        fronts |= set(probe.frontier())
    assert len(fronts) > 40


class Collector(Vertex[int]):
    """A sink: it sends nothing, and keeps what is complete."""

    def __init__(self, complete: list[tuple[int, list[int]]]) -> None:
        self.records: dict[int, list[int]] = defaultdict(list)
        self.complete = complete

    def on_recv(self, port: int, batch: list[int], time: int) -> None:
        self.records[time + 1] += batch
        self.notify_at(time + 1)

    def on_notify(self, time: int) -> None:
        self.complete.append((time, sorted(self.records.pop(time))))


def test_a_vertex_without_outputs_is_a_sink() -> None:
    complete: list[tuple[int, list[int]]] = []

    def build(scope: Any, stream: Any) -> Any:
        assert timely.operators.vertex(scope, Collector, complete, inputs=[stream], outputs=0) == []
        return stream

    feed(timely.Worker(), [[2, 1], [], [3]], build)
    assert complete == [(1, [1, 2]), (3, [3])]


# -- re-entrancy -------------------------------------------------------------------------------------------------------


class Diver(Vertex[Product[int, int]]):
    """Sends each number down to 0 round the loop, two copies of it, and measures how deep its callbacks are nested."""

    def __init__(self, reentrancy: int) -> None:
        self.reentrancy = reentrancy
        self.depth = 0
        self.deepest = 0
        self.received: list[int] = []

    def on_recv(self, port: int, batch: list[int], time: Product[int, int]) -> None:
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        for x in batch:
            self.received.append(x)
            if x:
                self.send_by(0, [x - 1], time)
                self.send_by(0, [x - 1], time)
        self.notify_at(time)
        self.depth -= 1

    def on_notify(self, time: Product[int, int]) -> None:
        assert self.depth == 0


def dive(worker: timely.Worker, reentrancy: int, numbers: list[int], exchanged: bool = False) -> Diver:
    """Run a diver in a loop, and return it."""
    diver = Diver(reentrancy)
    with worker.dataflow(int) as scope:
        stream = scope.to_stream(numbers if worker.index == 0 else [])
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            pact = Exchange(lambda x: x) if exchanged else timely.Pipeline
            stream.enter(loop).vertex(diver, others=[(again, pact)]).connect_loop(handle)
    worker.run()
    return diver


@given(numbers=st.lists(st.integers(0, 6), min_size=1, max_size=3), reentrancy=st.integers(0, 8))
def test_the_depth_never_exceeds_what_was_declared(numbers: list[int], reentrancy: int) -> None:
    diver = dive(timely.Worker(), reentrancy, numbers)
    assert diver.deepest == 1 + min(reentrancy, max(numbers))
    assert len(diver.received) == sum(2 ** (n + 1) - 1 for n in numbers)


@given(numbers=st.lists(st.integers(0, 5), min_size=1, max_size=3), reentrancy=st.integers(0, 4), seed=SEEDS)
def test_the_depth_on_several_workers(numbers: list[int], reentrancy: int, seed: int) -> None:
    divers = simulate(lambda worker: dive(worker, reentrancy, numbers, exchanged=True), workers=3, seed=seed).results
    assert all(diver.deepest <= 1 + reentrancy for diver in divers)
    assert sum(len(diver.received) for diver in divers) == sum(2 ** (n + 1) - 1 for n in numbers)


def test_a_vertex_that_may_be_entered_again_goes_depth_first() -> None:
    assert dive(timely.Worker(), 9, [2]).received == [2, 1, 0, 0, 1, 0, 0]
    assert dive(timely.Worker(), 0, [2]).received == [2, 1, 1, 0, 0, 0, 0]


def test_a_way_back_by_two_operators_is_not_followed_at_once() -> None:
    diver = Diver(5)

    def build(scope: Any) -> Any:
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            out = scope.to_stream([3]).enter(loop).concat(again).vertex(diver)
            out.connect_loop(handle)
            return out.leave()

    timely.example(build)
    assert (diver.deepest, len(diver.received)) == (1, 15)


def test_an_operator_that_is_running_is_not_run_on_the_way_back_of_another() -> None:
    diver = Diver(2)

    def build(scope: Any) -> Any:
        builder = timely.OperatorBuilder(scope, "impatient feedback")
        port = builder.reserve_input()
        again: Any = builder.new_output({0: timely.Antichain([timely.Step(1)])})

        def constructor(capabilities: Any, info: timely.OperatorInfo) -> Any:
            def logic(input: Any, output: Any) -> None:
                for capability, batch in input:
                    output.session(capability.delayed(capability.time + 1)).give_batch(batch)
                    info.activator.run_loops()  # which leads to the vertex, whose callback is running

            return logic

        builder.build(constructor)
        out = scope.to_stream([4]).vertex(diver, others=[again])
        builder.connect(port, out, timely.Pipeline)
        return out

    timely.example(build)
    assert (diver.deepest, len(diver.received)) == (3, 2**5 - 1)


# -- checkpoints -------------------------------------------------------------------------------------------------------


@attrs.define
class Window(Vertex[int]):
    """The sum of the records of each epoch and of the one after it: attributes in slots, and requests for later times."""

    records: dict[int, list[int]] = attrs.field(factory=dict)

    def on_recv(self, port: int, batch: list[int], time: int) -> None:
        for end in (time, time + 1):
            self.records.setdefault(end, []).extend(batch)
            self.notify_at(end)

    def on_notify(self, time: int) -> None:
        self.send_by(0, [sum(self.records.pop(time))], time)


def windows(vertex: Vertex[int], epochs: list[tuple[int, list[int]]], stop: int) -> list[tuple[int, list[int]]]:
    """Run ``vertex`` on these epochs, up to ``stop``, and return what it has sent."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.vertex(vertex).capture()
    for epoch, records in epochs:
        handle.advance_to(epoch)
        handle.send_batch(records)
    handle.advance_to(stop)
    while not worker.idle:
        worker.step()
    return seen.extract()


@given(epochs=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=2, max_size=5), data=st.data())
def test_a_vertex_goes_on_from_a_checkpoint(epochs: list[list[int]], data: st.DataObject) -> None:
    numbered = list(enumerate(epochs))
    cut = data.draw(st.integers(0, len(epochs)))
    old = Window()
    before = windows(old, numbered[:cut], cut)
    state, asked = old.checkpoint(), pending(old)
    for _ in range(2):  # twice: what one does with the state is nothing to the other
        new = Window()
        new.restore(state)
        for time in asked:
            new.notify_at(time)
        assert pending(new) == asked
        after = windows(new, numbered[cut:], len(epochs) + 2)
        assert before + after == windows(Window(), numbered, len(epochs) + 2)


class Plain(Vertex[int]):
    """Attributes of all kinds: in its dictionary, in slots, and with a name that is mangled."""

    __slots__ = ("__hidden", "slot")

    def __init__(self) -> None:
        self.slot = [1]
        self.__hidden = {"a": 1}
        self.key = str
        self.notify_at(3)

    def change(self) -> None:
        self.slot.append(2)
        self.__hidden["a"] = 2

    def look(self) -> tuple[Any, ...]:
        return self.slot, self.__hidden, self.key


def test_a_checkpoint_has_every_attribute_and_shares_nothing() -> None:
    vertex, other = Plain(), Plain()
    vertex.change()
    state = vertex.checkpoint()
    vertex.slot.append(3)
    other.restore(state)
    assert other.look() == ([1, 2], {"a": 2}, str)
    other.change()
    assert state == vertex.checkpoint() | {"slot": [1, 2]}
    assert pending(vertex) == [3]


def test_a_checkpoint_of_a_running_vertex_leaves_the_dataflow_out() -> None:
    vertex = Sum()
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.vertex(vertex).probe()
    handle.send(4)
    worker.step()
    assert vertex.checkpoint() == {"sums": {0: 4}}
    assert pending(vertex) == [0]


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
    says = r"operator 'broken' \(/example/broken#1\) on worker 0 raised KeyError: 7; 'broken' was built at test_vertex"
    with pytest.raises(OperatorError, match=says) as error:
        timely.example(lambda scope: scope.to_stream([1]).vertex(make, 7, name="broken"))
    assert isinstance(error.value.__cause__, KeyError)
    assert (error.value.name, error.value.path, error.value.worker) == ("broken", "/example/broken#1", 0)


def test_a_vertex_that_cannot_be_made_goes_by_the_name_of_its_class() -> None:
    with pytest.raises(OperatorError, match=r"operator 'Broken' \(/example/Broken#1\).* raised TypeError"):
        timely.example(lambda scope: scope.to_stream([1]).vertex(Broken))
