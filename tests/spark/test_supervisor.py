"""The supervisor of a stream, without Spark: what it orders, and when it gives up. The test plays the workers.

White box: orders and answers come in every order, so the test plays the workers and the cluster.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import attrs
import pytest

from timely.errors import (
    ChangedDataflowError,
    CheckpointError,
    ConfigurationError,
    OperatorError,
    PeerLostError,
    SparkError,
    TimelyError,
)
from timely.recovery import MemoryStore
from timely.spark.stage_messages import Checkpointed, Computed, Message, Order, Ready
from timely.spark.streaming import supervisor
from timely.spark.streaming.epoch_log import EpochLog, File
from timely.spark.streaming.jobs import StreamJobs
from timely.spark.streaming.supervisor import ERRORS, LOSSES, Supervisor

WORKERS = 2


def idle(batches: Iterator[Any]) -> Iterator[Any]:
    """What the tasks of a stream are made of here: nothing runs it."""
    return batches


@attrs.define(eq=False)
class Attempt:
    """A run at the rendezvous, and the barrier job of it: the test says what its workers say, and how it ends."""

    id: bytes
    workers: int = WORKERS
    failure: TimelyError | None = None
    wanted: Callable[[], bool] = lambda: True
    orders: list[tuple[str, int]] = attrs.field(factory=list)
    listeners: dict[Any, Callable[..., object]] = attrs.field(factory=dict)
    ended: queue.Queue[Exception | None] = attrs.field(factory=queue.Queue)

    def listen(self, kind: Any, callback: Callable[..., object]) -> None:
        self.listeners[kind] = callback

    def broadcast(self, order: Order) -> int:
        self.orders.append((order.action, order.epoch))
        if order.action == "end":
            self.ended.put(None)
        return self.workers

    def send(self, message: Message, *workers: int) -> None:
        """Have all workers, or these, send a message."""
        for worker in workers or range(self.workers):
            self.listeners[type(message)](worker, 0, message)

    def ready(self, epoch: int) -> None:
        """Have all workers be ready."""
        for worker in range(self.workers):
            self.send(Ready(epoch, worker), worker)

    def compute(self, epoch: int) -> None:
        """Have all workers say that they have computed an epoch."""
        for worker in range(self.workers):
            self.send(Computed(epoch, {"sums": [f"{self.id.hex()}-{worker}", epoch]}), worker)

    def die(self, failure: TimelyError | None = None) -> None:
        """End the job."""
        self.failure = failure
        self.ended.put(RuntimeError("Job aborted due to stage failure"))


class Cluster:
    """A session, a rendezvous and a DataFrame, as far as a supervisor looks at them."""

    def __init__(self) -> None:
        self.attempts: queue.Queue[Attempt] = queue.Queue()
        self.newest = Attempt(b"none")
        self.sparkContext = self
        self.master = "local[3]"
        self.pythonExec = "python3"
        self.opened = 0

    def open_run(self, workers: int, patience: float) -> Attempt:
        self.opened += 1
        self.newest = Attempt(bytes([self.opened]))
        return self.newest

    def setJobGroup(self, *_: Any, **__: Any) -> None: ...

    def cancelJobGroup(self, group: str) -> None:
        self.newest.ended.put(RuntimeError("cancelled"))

    def range(self, *_: int) -> Cluster:
        return self

    def mapInArrow(self, *_: Any, **__: Any) -> Cluster:
        return self

    def collect(self) -> None:
        self.attempts.put(self.newest)
        error = self.newest.ended.get()
        if error is not None:
            raise error


@attrs.define
class Scene:
    """A supervisor and what is around it."""

    cluster: Cluster
    epoch_log: EpochLog
    supervisor: Supervisor
    pool: ThreadPoolExecutor

    def next(self) -> Attempt:
        """The next attempt, once it is made."""
        return self.cluster.attempts.get(timeout=600)

    def begin(self, boundary: int = 0) -> Attempt:
        """The first attempt, ready at a boundary."""
        begun = self.pool.submit(self.supervisor.begin)
        attempt = self.next()
        attempt.ready(boundary)
        begun.result(600)
        return attempt

    def compute(self, epoch: int) -> Future[Any]:
        """An epoch that is taken in, and waited for."""
        self.epoch_log.ingest(epoch, [])
        return self.pool.submit(self.supervisor.compute, epoch)

    def finish(self, epoch: int, attempt: Attempt) -> None:
        """An epoch from its beginning to its end."""
        computed = self.compute(epoch)
        attempt.compute(epoch)
        self.epoch_log.commit(epoch, computed.result(600))
        self.epoch_log.deliver(epoch)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(supervisor, "carried", lambda function, *_: function)
    cluster, epoch_log = Cluster(), EpochLog(MemoryStore())
    task = attrs.make_class("WorkerTask", {"run": attrs.field(default=idle), "rendezvous": attrs.field(default=None)})
    jobs = StreamJobs(cast(Any, cluster), "a stream's")
    workers = Supervisor(jobs, cast(Any, cluster), WORKERS, epoch_log, ["sums"], 30.0, lambda run, attempt: task())
    with ThreadPoolExecutor() as pool:
        yield Scene(cluster, epoch_log, workers, pool)
        workers.end()


def orders(attempt: Attempt, count: int) -> list[tuple[str, int]]:
    """The first orders that an attempt gets, once there are so many."""
    pause = threading.Event()
    for _ in range(6000):
        if len(attempt.orders) >= count:
            break
        pause.wait(0.01)
    return attempt.orders


def test_an_epoch_is_done_when_all_workers_have_reported_their_files(scene: Scene) -> None:
    attempt = scene.begin()
    waiting = scene.compute(0)
    assert orders(attempt, 1) == [("compute", 0)]
    attempt.send(Computed(0, {"sums": ["b", 2]}), 1)
    assert not waiting.done()
    attempt.send(Computed(0, {}), 0)
    assert waiting.result(600) == {"sums": [File("b", 2)]}


def test_workers_that_were_lost_are_given_all_epochs_since_their_checkpoint(scene: Scene) -> None:
    first = scene.begin()
    for epoch in range(3):
        scene.finish(epoch, first)
    waiting = scene.compute(3)
    orders(first, 4)
    first.die()
    second = scene.next()
    second.ready(1)
    assert orders(second, 3) == [("replay", 1), ("replay", 2), ("compute", 3)]
    second.compute(3)
    assert waiting.result(600)["sums"][0].name.startswith(second.id.hex())
    assert scene.supervisor.attempts == 2


def test_messages_of_an_older_attempt_are_ignored(scene: Scene) -> None:
    first = scene.begin()
    waiting = scene.compute(0)
    orders(first, 1)
    first.die()
    second = scene.next()
    second.ready(0)
    orders(second, 1)
    first.compute(0)
    first.send(Checkpointed(1))
    assert not waiting.done()
    assert scene.supervisor.new_checkpoint() is None
    second.compute(0)
    assert waiting.result(600)["sums"][0].name.startswith(second.id.hex())


def test_a_checkpoint_is_ordered_between_epochs_and_announced_when_all_have_it(scene: Scene) -> None:
    attempt = scene.begin()
    scene.finish(0, attempt)
    scene.supervisor.checkpoint(1)
    assert attempt.orders == [("compute", 0), ("checkpoint", 1)]
    attempt.send(Checkpointed(1), 0)
    assert scene.supervisor.new_checkpoint() is None
    attempt.send(Checkpointed(1), 1)
    assert (scene.supervisor.new_checkpoint(), scene.supervisor.new_checkpoint()) == (1, None)
    scene.supervisor.checkpoint(5)  # of epochs that these workers do not have
    assert len(attempt.orders) == 2


@pytest.mark.parametrize(
    ("failure", "most"),
    [
        (None, LOSSES),
        (PeerLostError("worker 1 has been silent"), LOSSES),
        (SparkError("the connection to the driver has ended"), LOSSES),
        (OperatorError("operator 'map' raised"), ERRORS),
        (CheckpointError("the disk is full"), ERRORS),
        (ChangedDataflowError("it has no operator 'map'"), 1),
        (ConfigurationError("build must return a dictionary"), 1),
    ],
)
def test_how_often_the_same_failure_is_tried_again(scene: Scene, failure: TimelyError | None, most: int) -> None:
    message = threading.Event()
    scene.supervisor.on_failure = message.set
    begun = scene.pool.submit(scene.supervisor.begin)
    for _ in range(most):
        assert scene.supervisor.failure is None
        scene.next().die(failure)
    with pytest.raises(type(failure) if failure is not None else SparkError):
        begun.result(600)
    assert message.wait(600)
    assert scene.supervisor.attempts == most


def test_an_epoch_in_between_counts_failures_anew(scene: Scene) -> None:
    attempt = scene.begin()
    for epoch in range(2 * LOSSES):
        scene.finish(epoch, attempt)
        attempt.die()
        attempt = scene.next()
        attempt.ready(epoch + 1)
    assert scene.supervisor.failure is None


def test_workers_whose_checkpoint_is_further_than_what_is_committed(scene: Scene) -> None:
    with pytest.raises(CheckpointError, match="holds all epochs before 7"):
        scene.begin(7)


def test_workers_that_are_not_up_yet_can_be_ended(scene: Scene) -> None:
    begun = scene.pool.submit(scene.supervisor.begin)
    scene.next()
    scene.supervisor.end()
    with pytest.raises(SparkError, match="have left"):
        begun.result(600)
