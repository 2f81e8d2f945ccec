"""Containers of odd makes on every path at once: pipeline, loop, broadcast, exchange, recording, the wire, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely.errors import OperatorError, RoutingError
from timely.progress import ProductSummary, Step

read_only = np.arange(6)
read_only.flags.writeable = False

CONTAINERS: dict[str, Any] = {
    "no columns": pa.RecordBatch.from_struct_array(pa.array([{}] * 4, pa.struct([]))),
    "views": pa.record_batch({"k": pa.array(["a" * 30, None], pa.string_view()), "b": pa.array([None, b""], pa.binary_view())}),
    "a dictionary": pa.record_batch({"k": pa.array(["a", None, "a"]).dictionary_encode()}),
    "a piece of a dictionary": pa.record_batch({"k": pa.array(["a", "b", "c"]).dictionary_encode()}).slice(2),
    "nothing but nulls": pa.record_batch({"k": pa.nulls(3)}).replace_schema_metadata({"made": "here"}),
    "structured": np.array([(1, 2.5, "é"), (2, 3.5, "zz")], dtype=[("k", "i4"), ("b", ">f8"), ("c", "U3")]),
    "big-endian": np.arange(3, dtype=">i8"),
    "turned": np.arange(24).reshape(4, 6).T,
    "with gaps": np.arange(24).reshape(4, 6)[::2, ::3],
    "backwards": np.arange(5)[::-1],
    "broadcast": np.broadcast_to(np.arange(3), (4, 3)),
    "read-only": read_only,
    "objects": np.array([1, "a", None, (1, 2)], dtype=object),
    "rows of objects": np.array([[(1, 2), (3, 4)], ["a", None]], dtype=object),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, pa.RecordBatch):
        return bool(len(one) == len(other) and one.equals(other, check_metadata=True))
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tolist() == other.tolist())


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_of_any_make_is_the_same_on_every_path(name: str, processes: int, tmp_path: Path) -> None:
    sent = CONTAINERS[name]
    key: Any = (lambda array: np.ones(len(array), np.int64)) if isinstance(sent, np.ndarray) else "k"

    def program(worker: timely.Worker) -> dict[str, list[Any]]:
        record = tmp_path / f"part{worker.index}"
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            with scope.iterative() as loop:
                feedback, again = loop.feedback(ProductSummary(Step(0), Step(1, limit=2)))  # twice round
                stream.enter(loop).concat(again).connect_loop(feedback)
                looped = again.leave()
            seen = {"pipeline": stream.capture(), "loop": looped.capture(), "broadcast": stream.broadcast().capture()}
            if name != "no columns":
                seen["exchange"] = stream.exchange(key).capture()
            stream.capture_into(record)
        if worker.index == 0:
            handle.send_batch(sent)
        handle.close()
        worker.run()
        with worker.dataflow(int) as scope:
            seen["recording"] = scope.replay(record).capture()
        worker.run()
        return {path: [batch for _, batch in capture.messages] for path, capture in seen.items()}

    results = timely.execute(program, processes=processes)
    for path, times in {"pipeline": 1, "loop": 2, "broadcast": processes, "recording": 1}.items():
        got = [batch for part in results for batch in part[path]]
        assert len(got) == times and all(same(sent, batch) for batch in got), path
    parts = [batch for part in results for batch in part.get("exchange", [sent])]
    assert sum(map(len, parts)) == len(sent) * (1 if "exchange" in results[0] else processes)
    assert len(parts) > 1 or same(sent, parts[0])


def test_views_are_partitioned_to_where_strings_go() -> None:
    words = ["tea", "café", None, "x" * 40, ""]

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.exchange("word").capture()
        if worker.index == 0:
            for kind in (pa.string(), pa.string_view()):
                handle.send_batch(pa.record_batch({"word": pa.array(words, kind), "n": range(len(words))}))
                handle.advance_to(handle.time + 1)
        handle.close()
        worker.run()
        return seen.messages

    collected = [message for part in timely.execute(program, workers=3) for message in part]
    plain, views = ([batch.to_pylist() for time, batch in collected if time == epoch] for epoch in (0, 1))
    assert plain == views
    assert {batch.schema.field("word").type for time, batch in collected if time == 1} == {pa.string_view()}


def test_a_type_without_take_in_arrow_is_an_error_with_the_remedy() -> None:
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array([1, 2]))

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange("n").probe()
        handle.send_batch(pa.record_batch({"n": range(5), "runs": encoded}))
        handle.close()
        worker.run()

    with pytest.raises(OperatorError, match="cast its columns") as raised:
        timely.execute(program, workers=2)
    assert isinstance(raised.value.__cause__, RoutingError)
