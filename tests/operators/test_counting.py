"""Counting by record and on columns, against Python's own, for any times and batches on any number of workers.

White box: when partial results are brought together changes only the cost.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute, seeds, sizes
from timely import GraphError, OperatorError, SchemaError
from timely.operators.keyed import grouping

words = st.sampled_from(["a", "b", "c", "", "é"])


def test_value_counts_takes_rows_of_arrow_batches_and_refuses_keys_that_cannot_be_routed() -> None:
    def build(scope: timely.ScopeBuilder[int]) -> Any:
        handle, stream = scope.new_input()
        handle.send_batch(pa.record_batch({"word": ["a", "b", "a"]}))
        handle.send_batch([("b",)])
        return stream.value_counts()

    assert timely.example(build) == [(0, [(("a",), 2), (("b",), 2)])]
    with pytest.raises(OperatorError, match="RoutingError.* 1.5j is of type complex: give key="):
        timely.example(lambda scope: scope.to_stream([1.5j]).value_counts())


rows = st.tuples(st.integers(0, 2), words | st.none(), st.integers(-3, 3) | st.none(), st.booleans())
batches = st.lists(st.lists(rows, min_size=1, max_size=6), max_size=8)


def columns(batch: list[Any], plain: bool) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each time as a batch; words dictionary-encoded, each batch with a dictionary of its own, unless ``plain``."""
    times: defaultdict[int, list[Any]] = defaultdict(list)
    for time, *row in batch:
        times[time].append(row)
    made = []
    for time, at_time in times.items():
        keys, values, flags = map(list, zip(*at_time, strict=True))
        text = pa.array(keys, pa.string())
        made.append((time, pa.record_batch({
            "word": text if plain else text.dictionary_encode(),
            "odd": [number % 2 for number in range(len(keys))],
            "value": pa.array(values, pa.int64()),
            "flag": flags,
        })))  # fmt: skip
    return made


def group(program_batches: list[tuple[int, pa.RecordBatch]], build: Callable[[Any], Any], workers: int, seed: int | None) -> Any:
    """What comes out on all workers, to which the batches are dealt in turn, as ``(time, row)``."""

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            (handle, capability), stream = scope.new_unordered_input()
            seen = build(stream).capture()
        for time, batch in program_batches[worker.index :: worker.peers]:
            handle.session(capability.delayed(time)).give_batch(batch)
            worker.step()
        capability.drop()
        worker.run()
        return [(time, row) for time, batch in seen.messages for row in batch.to_pylist()]

    return [result for part in execute(program, workers, seed) for result in part]


@given(batches, sizes, seeds, st.booleans(), st.integers(1, 12))
@settings(max_examples=60)
def test_group_by_is_what_python_makes_of_the_rows(
    sent: list[Any], workers: int, seed: int | None, plain: bool, waiting: int
) -> None:
    made = [pair for batch in sent for pair in columns(batch, plain)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "WAITING", waiting)  # so that what waits is brought together now and then
        outputs = group(made, lambda s: s.group_by(
            ["word", "odd"], rows="count", values=("value", "count"), total=("value", "sum"), least=("value", "min"),
            most=("value", "max"), some=("flag", "any"), every=("flag", "all"), times=("value", "product"),
        ), workers, seed)  # fmt: skip
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for time, batch in made:
        for row in batch.to_pylist():
            groups[time, row["word"], row["odd"]].append(row)
    assert len(outputs) == len(groups)
    for time, row in outputs:
        mine = groups[time, row["word"], row["odd"]]
        values = [each["value"] for each in mine if each["value"] is not None]
        product = 1
        for value in values:
            product *= value
        assert (row["rows"], row["values"]) == (len(mine), len(values))
        assert (row["total"], row["times"]) == ((sum(values), product) if values else (None, None))
        assert (row["least"], row["most"]) == (min(values, default=None), max(values, default=None))
        assert (row["some"], row["every"]) == (any(each["flag"] for each in mine), all(each["flag"] for each in mine))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("waiting", [1, 100])
def test_batches_for_group_by_may_differ_in_kind(workers: int, waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "WAITING", waiting)
    word = pa.array(["a", "b", "a"])
    made = [
        pa.record_batch({"word": word, "value": [1, 2, 3]}),
        pa.record_batch({"value": pa.array([4, 5, 6], pa.int8()), "more": [0.5] * 3, "word": word.dictionary_encode()}),
        pa.record_batch({"value": pa.nulls(3), "word": word.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))}),
        pa.RecordBatch.from_arrays([word, pa.array([7, 8, 9])], schema=pa.schema([
            pa.field("word", pa.string(), nullable=False), pa.field("value", pa.int64(), nullable=False),
        ])),
        pa.record_batch({"word": pa.nulls(1), "value": [10]}),
    ]  # fmt: skip
    wanted = {"rows": "count", "total": ("value", "sum"), "least": ("value", "min")}
    outputs = group([(0, batch) for batch in made], lambda s: s.group_by("word", **wanted), workers, None)
    expected = [("a", 8, 30, 1), ("b", 4, 15, 2), (None, 1, 10, 10)]
    assert sorted((tuple(row.values()) for _, row in outputs), key=str) == expected


GROUPED = """
import sys
import numpy as np
import pyarrow as pa
import timely

def build(scope):
    orders, stream = scope.new_input()
    orders.send_batch(pa.record_batch({"key": np.array([1, 2, 1]), "value": np.array([5, 7, 9])}))
    return stream.group_by("key", total=("value", "sum"), number="count")

assert timely.example(build) == [(0, [(1, 14, 2), (2, 7, 1)])]
print(sorted({"pyarrow.acero", "pyarrow.dataset", "pyarrow.parquet"} & sys.modules.keys()))
"""


def test_to_group_rows_no_datasets_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", GROUPED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_where_arrow_has_its_plans_in_another_place_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.acero

    assert pyarrow.acero
    monkeypatch.setitem(sys.modules, "pyarrow._acero", None)
    monkeypatch.delattr(pa, "_acero")
    test_group_by_without_columns_gives_the_distinct_keys()


def test_group_by_without_columns_gives_the_distinct_keys() -> None:
    batch = pa.record_batch({"word": ["a", "b", "a"], "more": [1, 2, 3]})
    outputs = group([(0, batch), (0, batch), (1, batch)], lambda s: s.group_by("word"), 2, None)
    assert sorted((time, row["word"]) for time, row in outputs) == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


@pytest.mark.parametrize(
    ("keys", "wanted", "says"),
    [
        ("word", {"mean": ("value", "mean")}, "a mean is a sum and a count"),
        ("word", {"n": "size"}, "neither"),
        ("word", {"word": "count"}, "other names"),
        ([], {"n": "count"}, "needs keys"),
        (["word", "word"], {"n": "count"}, "other names"),
    ],
)
def test_group_by_refuses_what_it_cannot_do(keys: Any, wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        timely.example(lambda scope: scope.empty().group_by(keys, **wanted))


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (["a"], "use value_counts or aggregate"),
        (
            pa.record_batch({"other": ["a"]}),
            r"ContainerError: .*needs each of the columns \['word'\] once, and a batch has \['other'\]",
        ),
        (pa.RecordBatch.from_arrays([pa.array(["a"])] * 2, names=["word", "word"]), r"a batch has \['word', 'word'\]"),
        (pa.table({"word": ["a"]}), "what came is a Table"),
    ],
)
def test_group_by_names_itself_where_what_comes_is_not_what_it_needs(sent: Any, says: str) -> None:
    def build(scope: timely.ScopeBuilder[int]) -> Any:
        handle, stream = scope.new_input()
        handle.send_batch(sent)
        return stream.group_by("word", n="count")

    with pytest.raises(OperatorError, match=says) as caught:
        timely.example(build)
    assert caught.value.name.startswith("group_by")


LATER = pa.array([1], pa.duration("us"))
TEXT, VIEW = pa.array(["a"]), pa.array(["a"], pa.string_view())


@pytest.mark.parametrize("waiting", [1, grouping.WAITING])
@pytest.mark.parametrize(
    ("batches", "wanted", "says"),
    [
        ([{"k": TEXT, "v": LATER}], {"m": ("v", "max")}, r"make max\('v'\) of .* 'k' of type string, 'v' of type duration\[us\]"),
        ([{"k": TEXT, "v": TEXT}], {"m": ("v", "sum")}, r"make sum\('v'\) of .* 'v' of type string"),
        ([{"k": TEXT}, {"k": VIEW}], {"n": "count"}, r"'k' of type string and string_view"),
        ([{"k": pa.array([[1]])}], {}, r"cannot bring together the columns 'k' of type list<item: int64>"),
        ([{"k": TEXT, "v": TEXT}, {"k": TEXT, "v": LATER}], {"m": ("v", "min")}, r"group_by cannot make min"),
    ],
)
def test_group_by_names_the_columns_that_arrow_cannot_group(
    batches: list[Any], wanted: dict[str, Any], says: str, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "WAITING", waiting)

    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        handle, stream = scope.new_input()
        for batch in batches:
            handle.send_batch(pa.record_batch(batch))
        handle.close()
        return stream.group_by("k", **wanted)

    with pytest.raises(OperatorError, match=rf"{says}.*: .*; cast them with map_batch") as caught:
        timely.example(build)
    assert isinstance(caught.value.__cause__, SchemaError)
    assert isinstance(caught.value.__cause__.__cause__, pa.ArrowException)


def test_keys_that_cannot_be_routed_are_refused_on_one_worker_too() -> None:
    spans = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(OperatorError, match="RoutingError.*a column of type month_day_nano.* cannot be a key"):
        group([(0, pa.record_batch({"x": spans}))], lambda s: s.group_by("x", n="count"), 1, None)


def test_what_waits_is_brought_together_when_it_is_as_much_as_what_is_together_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """So memory is bounded, and each row is brought together with others a bounded number of times."""
    monkeypatch.setattr(grouping, "WAITING", 10)
    gathered: list[int] = []
    together = grouping.together

    def counting(batches: Any) -> Any:
        gathered.append(sum(map(len, batches)))
        return together(batches)

    monkeypatch.setattr(grouping, "together", counting)
    groups = grouping.PartialAggregates(["k"], [("n", None)], [("n", ("n", "sum"))])
    for number in range(75):
        groups = groups.add(pa.record_batch({"k": [number]}))
    assert gathered == [10, 10, 20]
    assert [len(batch) for batch in groups.result()] == [75]
    assert gathered == [10, 10, 20, 35]


@pytest.mark.parametrize("key", [pa.int8(), pa.uint64(), pa.timestamp("ms", "UTC")])
@pytest.mark.parametrize("kind", [pa.int16(), pa.uint32(), pa.int64(), pa.float32(), pa.float64()])
def test_sorted_rows_are_aggregated_as_others_are(key: pa.DataType, kind: pa.DataType) -> None:
    functions = {"total": "sum", "least": "min", "most": "max", "present": "count"}
    missing = [1, 2, 3, 4, 5, None] if kind == pa.int16() else [1, 2, 3, 4, 5, 6]
    values = pa.array(missing * 3, pa.int64()).cast(kind)
    if kind == pa.float64():
        values = pa.array([float("nan"), 2.5, -1.5] * 6, kind)
    batch = pa.record_batch({"k": pa.array([1, 1, 2, 5, 5, 5] * 3, pa.int64()).cast(key), "v": values}).sort_by("k")

    def grouped(rows: pa.RecordBatch) -> pa.Table:
        worker = timely.Worker()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            columns = {name: ("v", function) for name, function in functions.items()}
            captured = stream.group_by("k", rows="count", **columns).capture()
        handle.send_batch(rows)
        handle.close()
        worker.run()
        return captured.to_arrow().sort_by("k")

    ascending, descending = grouped(batch), grouped(batch.take(pa.array(range(len(batch) - 1, -1, -1))))
    assert ascending.schema == descending.schema
    assert str(ascending) == str(descending)  # NaN is not equal to itself
