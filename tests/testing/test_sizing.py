"""Progress that is added up on the way: nobody is told too much, and what is counted of it is what was sent."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plot import Curve, plot
from benchmarks.sizing_traffic import DATAFLOWS, barrier, cost, cost_scattered, round_of
from timely import ConfigurationError, InvariantViolation, Worker
from timely.progress import ProgressBatch
from timely.testing import Dataflow, dataflows, simulate, time_kit
from timely.testing.accumulated import Accumulated
from timely.testing.forest import Forest
from timely.testing.network import Network
from timely.testing.traffic import Drive, lockstep, scattered, weigh
from timely.worker.coalesce import PROGRESS

FORESTS = [
    Forest.broadcast(4),
    Forest.processes(4, 2),
    Forest.central(4),
    Forest.central(4, 2),
    Forest.tree(4, 2),
    Forest.tree(4, 2, 2),
]


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(FORESTS), dataflows(time_kit(int)), st.integers(0, 999))
def test_every_invariant_holds_where_progress_is_added_up_on_the_way(forest: Forest, flow: Dataflow, seed: int) -> None:
    run = simulate(flow.program, workers=4, seed=seed, network=lambda workers: Accumulated(forest, seed))
    assert flow.merged(run.results) == flow.reference()


class _Doubling(Accumulated):
    """An accumulator that forgets to leave out what the receiver said itself."""

    def _unfold(self, worker: int, packet: Any) -> None:
        before = len(self.inboxes[worker])
        own = self._own.get((worker, packet.number))
        if own is not None:
            self._own[worker, packet.number] = type(own)(ProgressBatch(worker, b.sequence, ()) for b in own)
        super()._unfold(worker, packet)
        assert len(self.inboxes[worker]) >= before


def test_an_accumulator_that_returns_what_one_said_oneself_is_found() -> None:
    def program(worker: Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([worker.index]).exchange(lambda x: x + 1).probe()
        worker.run()

    with pytest.raises(InvariantViolation):
        for seed in range(10):
            simulate(program, workers=4, seed=seed, network=lambda workers: _Doubling(Forest.central(4)))


@pytest.mark.parametrize("forest", FORESTS)
def test_one_round_without_workers_weighs_as_much_as_real_workers_send(forest: Forest) -> None:
    counted = lockstep(barrier, forest)
    assert counted.turns == counted.iterations
    weighed = weigh(forest, round_of(4))
    found = counted.traffic
    each = (found.messages, found.updates, found.bytes, found.local)
    assert each == tuple(counted.iterations * n for n in (weighed.messages, weighed.updates, weighed.bytes, weighed.local))


def test_a_broadcast_is_what_the_library_sends() -> None:
    class Listening(Network):
        batches = 0

        def send(self, source: int, target: int, message: Any) -> None:
            self.batches += message[0] == PROGRESS
            super().send(source, target, message)

    def play(network: Network) -> None:
        workers = [Worker(network.transport(index)) for index in range(3)]
        for worker in workers:
            barrier(worker)
        for _ in range(10):
            for worker in workers:
                worker.step()
            for pair in network.waiting():
                network.deliver(*pair, 1000)

    plain, added = Listening(3), Accumulated(Forest.broadcast(3))
    play(plain)
    play(added)
    assert plain.batches == added.traffic.messages > 0


@pytest.mark.parametrize("forest", [forest for forest in FORESTS if len(forest.roots) == 1])
def test_what_cancels_on_the_way_up_does_not_come_down(forest: Forest) -> None:
    batches = [ProgressBatch(worker, 0, ((("place", 0), (-1) ** worker),)) for worker in range(4)]
    on_the_way_up = sum(parent is not None and not set(forest.children[node]) for node, parent in enumerate(forest.parents))
    ups = on_the_way_up if not forest.local else 0  # within a process it costs nothing, and cancels there
    assert weigh(forest, batches).updates == ups
    assert weigh(forest, batches[::2]).updates > 0


@pytest.mark.parametrize(("workers", "each"), [(4, 3), (4, 0)])
def test_workers_that_cannot_be_dealt_to_processes_are_refused(workers: int, each: int) -> None:
    with pytest.raises(ConfigurationError):
        Forest.processes(workers, each)


def test_a_node_that_adds_up_for_one_only_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Forest.tree(4, 1)


def test_where_messages_come_one_by_one_a_barrier_takes_no_more_of_them() -> None:
    together, apart = lockstep(barrier, Forest.broadcast(4)), scattered(barrier, 4, first=5, last=25)
    each = [counted.traffic.messages / counted.iterations / 12 for counted in (together, apart)]
    assert each[0] == 1
    assert abs(each[1] - 1) < 0.2, "some workers are an iteration ahead of the last, at both ends of what is counted"


def test_a_worker_that_answers_each_message_by_itself_says_more() -> None:
    def shuffle(worker: Worker) -> Drive:
        with worker.dataflow() as scope:
            numbers, stream = scope.new_input()
            probe = stream.exchange(lambda x: x).probe()

        def drive() -> int:
            if not probe.less_than(numbers.time):
                numbers.send_batch(list(range(worker.peers)))
                numbers.advance_to(numbers.time + 1)
            return numbers.time

        return drive

    together, apart = lockstep(shuffle, Forest.broadcast(4)), scattered(shuffle, 4, first=3, last=8)
    assert together.traffic.data / together.iterations == apart.traffic.data / apart.iterations == 4 * 3
    assert apart.traffic.messages / apart.iterations > together.traffic.messages / together.iterations


def test_what_never_ends_an_iteration_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.testing.traffic._MOST_TURNS", 10)

    def idle(worker: Worker) -> Drive:
        with worker.dataflow() as scope:
            scope.new_input()
        return lambda: 0

    with pytest.raises(ConfigurationError):
        lockstep(idle, Forest.broadcast(2))
    with pytest.raises(ConfigurationError):
        scattered(idle, 2)


@pytest.mark.parametrize("name", DATAFLOWS)
def test_what_one_worker_tells_another_does_not_depend_on_how_many_there_are(name: str) -> None:
    few, many = cost(name, 8)[0], cost(name, 16)[0]
    assert few == many


def test_an_exchange_of_messages_that_come_one_by_one_is_told_of_in_as_many_batches() -> None:
    few, many = (cost_scattered("exchange", workers).batches for workers in (4, 8))
    assert 4 <= few <= 6 and 8 <= many <= 10


def test_a_plot_shows_each_curve_where_its_points_are() -> None:
    picture = ElementTree.fromstring(plot("a < b", [Curve("flat", [(1, 10), (4, 10)]), Curve("steep", [(1, 10), (4, 1000)])]))
    ways = [line.attrib["points"].split() for line in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    flat, steep = ([tuple(map(float, point.split(","))) for point in way] for way in ways)
    assert flat[0] == steep[0] and flat[0][1] == flat[1][1]
    assert steep[1][1] < flat[1][1], "what is more stands higher"
    assert {"a < b", "flat", "steep"} <= {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
