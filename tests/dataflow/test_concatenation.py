"""Small columnar containers are concatenated before an exchange, others handed on as they are: their number and identity show it.

White box: which containers may be concatenated, and from which size on they are not, never changes a result.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import Exchange, InputPort, OutputPort, Pipeline, Step, Stream, Worker
from timely.dataflow import Pact, channel, pickled
from timely.dataflow.containers.concatenation import BYTES, ENOUGH, SMALL, compatible, concatenated, narrow
from timely.progress import ProductSummary
from timely.worker import thread_transports

KINDS: list[Callable[[list[int]], Any]] = [
    lambda keys: pa.record_batch({"k": pa.array(keys, pa.int64())}),
    lambda keys: pa.record_batch({"k": pa.array(keys, pa.int64()), "n": pa.array(map(str, keys))}),
    lambda keys: np.array([(key,) for key in keys], [("k", np.int64)]),
    lambda keys: np.array([(key, 0.5) for key in keys], [("k", np.int64), ("x", float)]),
]


@contextmanager
def two_workers() -> Iterator[list[Worker]]:
    """Two workers that are stepped by hand, one after the other."""
    with ExitStack() as stack:
        workers = []
        for transport in thread_transports(2):
            stack.callback(transport.close)
            workers.append(Worker(transport))
        yield workers


def to_the_end(workers: list[Worker]) -> None:
    alive = [True]
    while any(alive):
        alive = [worker.step() for worker in workers]


def keys(container: Any) -> list[int]:
    return list(container.column("k").to_pylist() if isinstance(container, pa.RecordBatch) else container["k"].tolist())


def kind(container: Any) -> Any:
    return container.schema if isinstance(container, pa.RecordBatch) else container.dtype


def exchanged(sent: list[tuple[int, int, list[int]]], every: int) -> list[list[tuple[int, Any]]]:
    """What comes to two workers when the first sends ``(time, kind, keys)``, with a step after so many of them."""
    with two_workers() as workers:
        inputs, seen = [], []
        for worker in workers:
            with worker.dataflow(int) as scope:
                pair, stream = scope.new_unordered_input()
                inputs.append(pair)
                seen.append(stream.exchange("k").capture())
        inputs[1][1].drop()
        handle, capability = inputs[0]
        for number, (time, which, numbers) in enumerate(sent):
            handle.session(capability.delayed(time)).give_batch(KINDS[which](numbers))
            if number % every == every - 1:
                workers[0].step()
        capability.drop()
        to_the_end(workers)
        return [captured.messages for captured in seen]


batches = st.lists(st.integers(-9, 9), min_size=1, max_size=5)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, len(KINDS) - 1), batches), max_size=12),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 200),
)
def test_each_worker_gets_its_rows_in_order_whatever_is_joined(sent: Any, every: int, small: int, enough: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel, "SMALL", small)
        patch.setattr(channel, "ENOUGH", enough)
        patch.setattr(channel, "BYTES", most)
        outputs = exchanged(sent, every)
    for worker, messages in enumerate(outputs):
        got = [(time, kind(batch), key) for time, batch in messages for key in keys(batch)]
        expected = [(time, kind(KINDS[which](ks)), key) for time, which, ks in sent for key in ks if key % 2 == worker]
        assert got == expected
        assert all(len(batch) for _, batch in messages)


def sizes(sent: list[tuple[int, int, list[int]]]) -> list[tuple[int, int]]:
    """The time and the number of rows of each message that comes to the first worker, all of them sent in one step."""
    return [(time, len(batch)) for time, batch in exchanged(sent, every=100)[0]]


@pytest.mark.parametrize("which", range(len(KINDS)))
def test_small_containers_of_one_time_become_one(which: int) -> None:
    other = which ^ 1
    assert sizes([(0, which, [2, 3])] * 5) == [(0, 5)]
    assert sizes([(0, which, [2]), (0, which, [4]), (1, which, [2]), (0, which, [2])]) == [(0, 2), (1, 1), (0, 1)]
    assert sizes([(0, which, [2]), (0, other, [4]), (0, which, [2])]) == [(0, 1), (0, 1), (0, 1)]


def test_large_containers_are_partitioned_as_they_are() -> None:
    large = [2] * SMALL
    assert sizes([(0, 0, [2]), (0, 0, large), (0, 0, [2]), (0, 0, [2])]) == [(0, 1), (0, SMALL), (0, 2)]
    almost = [2] * (SMALL - 1)
    assert sizes([(0, 0, almost)] * 6) == [(0, 4 * (SMALL - 1)), (0, 2 * (SMALL - 1))]


def test_nothing_waits_beyond_the_activation_that_it_is_sent_in() -> None:
    with two_workers() as workers:
        handles, seen = [], []
        for worker in workers:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                handles.append(handle)
                seen.append(stream.map_batch(lambda batch: batch).exchange("k").capture())
        for worker in workers:
            worker.step()
        for key in range(6):
            handles[0].send_batch(KINDS[0]([key]))
        workers[0].step()
        assert [keys(batch) for _, batch in seen[0].messages] == [[0, 2, 4]]
        workers[1].step()
        assert [keys(batch) for _, batch in seen[1].messages] == [[1, 3, 5]]
        for handle in handles:
            handle.close()
        to_the_end(workers)


def test_a_function_that_distributes_gets_each_container_as_it_was_sent() -> None:
    with two_workers() as workers:
        seen = []
        for worker in workers:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                to_one = timely.Distribute(lambda time, batch, workers: [(len(batch) % workers, batch)])
                passed = stream.unary(to_one, "pass on", lambda c, i: lambda input, output: input.forward(output, lambda x: x))
                seen.append(passed.capture())
            if worker.index == 0:
                for rows in (1, 2, 3):
                    handle.send_batch(KINDS[0]([0] * rows))
            handle.close()
        to_the_end(workers)
    assert [[len(batch) for _, batch in captured.messages] for captured in seen] == [[2], [1, 3]]


# -- compatible, concatenated ----------------------------------------------------------------------------------------------


def test_only_what_has_the_same_columns_is_concatenated() -> None:
    batch = KINDS[0]([1])
    assert compatible(batch, KINDS[0]([2])) and not compatible(batch, KINDS[1]([1]))
    assert not compatible(batch, batch.replace_schema_metadata({"unit": "m"}))
    assert not compatible(pa.record_batch([], []), pa.record_batch([], []))
    assert compatible(np.arange(2), np.arange(3)) and not compatible(np.arange(2), np.arange(2.0))
    assert not compatible(np.zeros((2, 2)), np.zeros((2, 2)))  # rows or columns: how it lies in memory is the sender's choice
    assert not compatible([1], [2])
    assert not compatible(batch, np.arange(2))


def test_dictionaries_that_make_none_together_stay_apart() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    made = [
        pa.record_batch({"word": pa.array([f"{start + n}" for n in range(100)]).dictionary_encode().cast(kind)})
        for start in (0, 100)
    ]
    assert [part.to_pydict() for part in concatenated(made)] == [part.to_pydict() for part in made]


def test_an_order_of_categories_is_not_made_up() -> None:
    def batch(words: list[str]) -> Any:
        dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(words), ordered=True)
        return pa.record_batch({"n": pa.array([1, 2]), "size": dictionary})

    made = [batch(["small", "large"]), batch(["medium", "large"])]
    assert compatible(*made)
    sizes = [part.column("size") for part in concatenated(made)]
    assert [size.dictionary.to_pylist() for size in sizes] == [["small", "large"], ["medium", "large"]]


@pytest.mark.parametrize(
    "dtype",
    [
        ">i8",
        np.dtype({"names": ["a", "b"], "formats": ["i1", ">i8"], "offsets": [4, 16], "itemsize": 32}),
        np.dtype([("a", object), ("b", "U3")]),
    ],
)
def test_an_array_keeps_its_type_down_to_how_it_lies_in_memory(dtype: Any) -> None:
    parts = [np.zeros(rows, dtype) for rows in (2, 3)]
    (whole,) = concatenated(parts)
    assert whole.dtype == parts[0].dtype
    assert whole.tolist() == parts[0].tolist() + parts[1].tolist()


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (pa.record_batch({"k": [1], "x": [0.5], "b": [True]}), True),
        (pa.record_batch({"k": pa.array([b"x" * 120], pa.binary(120))}), True),
        (pa.record_batch({"k": pa.array([b"x" * 128], pa.binary(128))}), False),  # with a bit for what is missing
        (pa.record_batch({"k": ["text"]}), False),
        (pa.record_batch({"k": [[1]]}), False),
        (pa.record_batch({"k": [1], "d": pa.array(["x" * 5000]).dictionary_encode()}), False),
        (np.zeros(1, "V128"), True),
        (np.zeros(1, "V129"), False),
    ],
    ids=str,
)
def test_only_what_is_never_large_need_not_be_asked_for_its_bytes(batch: Any, expected: bool) -> None:
    assert narrow(batch) is expected
    if expected:
        many = batch.repeat(ENOUGH) if isinstance(batch, np.ndarray) else pa.Table.from_batches([batch] * ENOUGH).combine_chunks()
        assert many.nbytes <= BYTES


def test_batches_are_held_up_to_so_many_bytes_also_where_arrow_has_to_be_asked() -> None:
    for load, expected in ((pa.array(range(100)), [600]), (pa.array(["x" * 4000] * 100), [200, 200, 200])):
        batch = pa.record_batch({"k": pa.array([0] * 100), "load": load})
        with two_workers() as workers:
            handles, seen = [], []
            for worker in workers:
                with worker.dataflow(int) as scope:
                    handle, stream = scope.new_input()
                    handles.append(handle)
                    seen.append(stream.exchange("k").capture())
            for _ in range(6):
                handles[0].send_batch(batch)
            for handle in handles:
                handle.close()
            to_the_end(workers)
        assert [len(part) for _, part in seen[0].messages] == expected


PLAIN = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
    *(pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.duration("ms")),
]
OTHERS = [pa.bool_(), pa.string(), pa.decimal128(9, 2), pa.binary(3), pa.list_(pa.int8()), pa.month_day_nano_interval()]


EXAMPLES: dict[Any, Any] = {
    pa.bool_(): True,
    pa.string(): "a",
    pa.decimal128(9, 2): Decimal(1),
    pa.binary(3): b"abc",
    pa.list_(pa.int8()): [1],
}


def column(kind: pa.DataType, size: int) -> pa.Array:
    """Return so many values of a type; dates at midnight, and what is not plain with values that are missing."""
    if kind in OTHERS:
        return pa.array([None if i % 3 else EXAMPLES.get(kind) for i in range(size)], kind)
    if pa.types.is_date64(kind):
        return pa.array(range(size), pa.int32()).cast(pa.date32()).cast(kind)
    if pa.types.is_float16(kind):
        return pa.array(np.arange(size, dtype=np.float16))
    short = pa.types.is_time32(kind) or pa.types.is_date32(kind)
    return pa.array([i % 100 for i in range(size)], pa.int32() if short else pa.int64()).cast(kind)


@pytest.mark.parametrize("size", [1, 2, 501])
@pytest.mark.parametrize("kind", [*PLAIN, *OTHERS], ids=str)
def test_rows_of_every_type_are_partitioned(kind: pa.DataType, size: int) -> None:
    fields = [pa.field("key", pa.int64(), nullable=False), pa.field("value", kind, metadata={"of": "field"})]
    schema = pa.schema(fields, {"of": "all"})
    keys = np.random.default_rng(size).integers(-(1 << 40), 1 << 40, size + 5)
    batch = pa.RecordBatch.from_arrays([pa.array(keys), column(kind, size + 5)], schema=schema)[3:-2]
    for flipped in (batch, batch.set_column(0, schema.field(0), pa.array(keys[3:-2] | 1)), batch.select(["key"])):
        odd = flipped.column("key").to_numpy() % 2
        expected = [(worker, flipped.filter(pa.array(odd == worker))) for worker in (0, 1) if worker in odd]
        parts = Exchange("key").parts(0, flipped, 2)
        assert [worker for worker, _ in parts] == [worker for worker, _ in expected]
        for (_, part), (_, wanted) in zip(parts, expected, strict=True):
            part.validate(full=True)
            assert part.equals(wanted, check_metadata=True)
            main, *buffers = pickled(part)
            assert pickle.loads(main, buffers=buffers).equals(part)


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
