"""What need not be copied is handed on as it is: the containers that come out of a dataflow are those that went in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely import Exchange, InputPort, OutputPort, Pipeline, Step, Stream
from timely.dataflow import Pact
from timely.progress import ProductSummary

Records: TypeAlias = Stream[int, Any]
Way: TypeAlias = Callable[[Records], Records]

CONTAINERS = {
    "a list": [2, 4, 6],
    "an array": np.arange(0, 10_000, 2),
    "rows": np.zeros((5, 2), np.int64),
    "columns": np.zeros((2, 5), np.int64).T,
    "a short batch": pa.record_batch({"key": [4, 2]}),
    "a batch": pa.record_batch({"key": np.arange(0, 10_000, 2), "text": ["a", "b"] * 2500}),
}


def forwarded(stream: Records, pact: Pact = Pipeline) -> Records:
    """An operator that sends each container on."""

    def logic(input: InputPort[int, Any], output: OutputPort[int]) -> None:
        for capability, batch in input:
            output.session(capability).give_batch(batch)

    return stream.unary(pact, "forward", lambda capability, info: logic)


def around_a_loop(stream: Records) -> Records:
    with stream.scope.iterative() as loop:
        handle, again = loop.feedback(ProductSummary(Step(0), Step(1, limit=1)))
        stream.enter(loop).connect_loop(handle)
        return again.leave()


def through_a_region(stream: Records) -> Records:
    with stream.scope.region() as region:
        return stream.enter(region).leave()


WAYS: dict[str, Way] = {
    "an operator": forwarded,
    "map_batch": lambda stream: stream.map_batch(lambda batch: batch),
    "inspect_batch": lambda stream: stream.inspect_batch(lambda time, batch: None),
    "concat": lambda stream: stream.concat(stream.scope.empty()),
    "delay_batch": lambda stream: stream.delay_batch(lambda time: time + 1),
    "broadcast": lambda stream: stream.broadcast(),
    "a loop": around_a_loop,
    "a region": through_a_region,
}


def comes(container: Any, way: Way, workers: int) -> list[Any]:
    """Return what comes out on worker 0 when the container went in there."""

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = way(stream).capture()
        if worker.index == 0:
            handle.send_batch(container)
        handle.close()
        worker.run()
        return [batch for _, batch in seen.messages]

    return timely.execute(program, workers=workers)[0]


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_passed_on_is_not_copied(container: Any, way: Way, workers: int) -> None:
    """Among threads, too: to send it to all is to let all of them see it."""
    (came,) = comes(container, way, workers)
    assert came is container


def key(container: Any) -> Any:
    """What all of a container's rows go to worker 0 by, of up to 20: even numbers below do so by 2 alone."""
    if isinstance(container, pa.RecordBatch):
        return "key"
    return lambda array: array[:, 0] if array.ndim == 2 else array


@pytest.mark.parametrize("name", [name for name in CONTAINERS if name != "a list"])
@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_what_one_worker_gets_all_of_is_not_copied(name: str, workers: int) -> None:
    """As when it is exchanged by what it was exchanged by before: by NumPy, by Arrow, and by what there is for short batches."""
    container = CONTAINERS[name]
    if workers > 2 and name == "an array":
        container = container - container % workers
    elif workers > 2 and isinstance(container, pa.RecordBatch):
        even = container.column("key").to_numpy()
        container = container.set_column(0, "key", pa.array(even - even % workers))
    (came,) = Exchange(key(container)).parts(0, container, workers)
    assert came[0] == 0
    if isinstance(container, pa.RecordBatch):
        assert [column.buffers()[-1].address for column in came[1].columns] == [
            column.buffers()[-1].address for column in container.columns
        ]
        assert came[1].equals(container)
    else:
        assert came[1] is container


@pytest.mark.parametrize("name", ["an array", "a short batch", "a batch"])
def test_what_is_exchanged_to_where_it_is_is_not_copied(name: str) -> None:
    container = CONTAINERS[name]
    (came,) = comes(container, lambda stream: forwarded(stream, Exchange(key(container))), workers=2)
    assert came is container


def test_part_of_an_array_is_the_receivers_own() -> None:
    """What goes to several is copied, so that each may write to its part."""
    array = np.arange(5)
    parts = dict(Exchange(lambda some: some).parts(0, array, 2))
    parts[0][:] = 7
    assert array.tolist() == [0, 1, 2, 3, 4]
