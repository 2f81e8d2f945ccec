"""Keys of every kind go to the same worker in lists, Arrow batches and NumPy arrays, and columns do not become Python objects.

White box: short and long columns take different paths to one result, so the limits between them are moved; checksums are compared
with those of ``zlib``.
"""

from __future__ import annotations

import datetime
import random
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely import Exchange, RoutingError
from timely.dataflow import route, route_array, route_column
from timely.dataflow.containers import container, keys
from timely.dataflow.containers.keys import checksums

WORKERS = st.integers(1, 7)
TEXT = st.text(max_size=100)
LONG_TEXT = st.text(st.sampled_from("aé€😀\0"), max_size=200)
DATES = st.dates()
INSTANTS = st.datetimes()
AWARE = st.datetimes(
    datetime.datetime(1600, 1, 1), datetime.datetime(2400, 1, 1), timezones=st.timezones() | st.just(datetime.UTC)
)
SPANS = st.timedeltas(datetime.timedelta(days=-100_000), datetime.timedelta(days=100_000))


# -- columns against single values ---------------------------------------------------------------------------------------

COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "string": (pa.string(), TEXT | LONG_TEXT),
    "large_string": (pa.large_string(), TEXT),
    "string_view": (pa.string_view(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=200)),
    "large_binary": (pa.large_binary(), st.binary()),
    "binary_view": (pa.binary_view(), st.binary()),
    "fixed_binary": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "date32": (pa.date32(), DATES),
    "date64": (pa.date64(), DATES),
    "timestamp_us": (pa.timestamp("us"), INSTANTS),
    "timestamp_utc": (pa.timestamp("us", tz="UTC"), AWARE),
    "timestamp_tz": (pa.timestamp("us", tz="Europe/Zurich"), AWARE),
    "timestamp_ms": (pa.timestamp("ms"), INSTANTS.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    "timestamp_s": (pa.timestamp("s"), INSTANTS.map(lambda t: t.replace(microsecond=0))),
    "timestamp_ns": (pa.timestamp("ns"), st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))),
    "duration_us": (pa.duration("us"), SPANS),
    "duration_ns": (pa.duration("ns"), SPANS),
    "null": (pa.null(), st.none()),
}


@pytest.mark.parametrize("kind", COLUMNS)
@given(data=st.data())
def test_a_column_is_routed_as_its_values_are(kind: str, data: st.DataObject) -> None:
    arrow, values = COLUMNS[kind]
    given_ = data.draw(st.lists(values | st.none(), max_size=12))
    start = data.draw(st.integers(0, len(given_)))
    column = pa.array(given_, arrow)
    expected = [route(value) for value in given_[start:]]
    for few in (keys._FEW, 0):  # short columns of text, and long ones
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keys, "_FEW", few)
            assert route_column(column.slice(start)).tolist() == expected
            if kind != "null":
                assert route_column(column.dictionary_encode().slice(start)).tolist() == expected


@given(st.lists(st.integers(-(2**40), 2**40) | st.none(), max_size=8))
def test_a_date_of_milliseconds_that_is_not_at_midnight_goes_where_its_day_goes(milliseconds: list[int | None]) -> None:
    column = pa.array(milliseconds, pa.int64()).view(pa.date64())
    assert route_column(column).tolist() == [route(value) for value in column.to_pylist()]


@pytest.mark.parametrize("workers", [2, 3, 16, 17, 256, 300, 512, 1000, 1 << 16, (1 << 16) + 1, 1 << 17])
def test_every_row_goes_to_one_of_any_number_of_workers(workers: int) -> None:
    numbers = [-1, 0, 1, 255, 256, workers - 1, workers, 2**40 + workers, -(2**40), 2**63 - 1, -(2**63)]
    array = np.array(numbers)
    unsigned = [number % 2**64 for number in numbers]
    for sent, expected in ((array, numbers), (array.astype(object), numbers), (array.astype(np.uint64), unsigned)):
        groups = {worker: part.tolist() for worker, part in Exchange(lambda some: some).parts(0, sent, workers)}
        assert groups == {n % workers: [m for m in expected if m % workers == n % workers] for n in expected}


@pytest.mark.parametrize("dtype", [f"{order}{kind}{size}" for order in "<>" for kind in "iu" for size in (1, 2, 4, 8)])
@given(data=st.data(), workers=st.integers(1, 40))
@settings(max_examples=20)
def test_a_whole_number_goes_to_one_worker_in_every_container(dtype: str, data: st.DataObject, workers: int) -> None:
    bounds = np.iinfo(dtype)
    least, most = int(bounds.min), int(bounds.max)
    numbers = data.draw(st.lists(st.integers(least, most) | st.sampled_from([least, most]), max_size=8))
    array = np.array(numbers, dtype)
    batch = pa.record_batch({"n": pa.array(numbers, pa.from_numpy_dtype(np.dtype(dtype).newbyteorder("=")))})
    expected = [(w, part) for w in range(workers) if (part := [number for number in numbers if number % workers == w])]
    assert route_array(array).tolist() == numbers
    if numbers:
        assert Exchange(lambda n: n).parts(0, numbers, workers) == expected
        assert [(w, part.tolist()) for w, part in Exchange(lambda some: some).parts(0, array, workers)] == expected
        assert [(w, part["n"].to_pylist()) for w, part in Exchange("n").parts(0, batch, workers)] == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3)), WORKERS)
def test_an_array_of_objects_is_routed_as_its_values_are(values: list[Any], workers: int) -> None:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    assert [int(number) % workers for number in route_array(array)] == [route(value) % workers for value in values]
    large = np.array([-(2**80), 2**90 + 1, 5], dtype=object)
    assert [int(number) % workers for number in route_array(large)] == [number % workers for number in large]


@given(st.lists(st.text(max_size=10).map(lambda text: text.rstrip("\0"))))
def test_fixed_width_text_of_arrays(values: list[str]) -> None:
    expected = [route(value) for value in values]
    assert route_array(np.array(values, dtype="U10")).tolist() == expected
    assert route_array(np.array(values, dtype=">U10")[::1]).tolist() == expected
    encoded = [value.encode() for value in values]
    assert route_array(np.array(encoded, dtype="S40")).tolist() == expected
    assert route_array(np.array(encoded * 2, dtype="S40")[::2]).tolist() == (expected * 2)[::2]


@pytest.mark.parametrize("unit", ["D", "h", "m", "s", "ms", "us", "ns", "W", "M", "Y", "25s"])
@given(counts=st.lists(st.integers(-1000, 3000) | st.none(), max_size=8))
def test_instants_and_spans_of_arrays(unit: str, counts: list[int | None]) -> None:
    for kind in ("M", "m"):
        if kind == "m" and unit in ("M", "Y"):
            continue
        nothing = np.iinfo(np.int64).min
        numbers = np.array([nothing if count is None else count for count in counts], np.int64)
        array = numbers.view(f"{kind}8[{unit}]")
        plain = array if unit != "ns" else (array.view(np.int64) // 1000).view(f"{kind}8[us]")
        values = [None if np.isnat(element) else value for element, value in zip(array, plain.tolist())]
        if kind == "m" and unit in ("D", "W"):
            assert all(value is None or isinstance(value, datetime.timedelta) for value in values)
        assert route_array(array).tolist() == [route(value) for value in values]
        assert [route(element) for element in array] == [route(value) for value in values]


def test_instants_and_spans_of_pandas_go_where_those_of_columns_go() -> None:
    pandas = pytest.importorskip("pandas")
    for series in (
        pandas.Series(pandas.to_datetime(["2020-01-02T03:04:05.000006007", None])),
        pandas.Series(pandas.to_timedelta(["5s", None])),
    ):
        assert [route(value) for value in series] == route_array(series.to_numpy()).tolist()


@pytest.mark.parametrize("dtype", ["M8[fs]", "m8[Y]", "m8", "c16", "V3"])
def test_arrays_that_are_no_keys(dtype: str) -> None:
    with pytest.raises(RoutingError, match="cannot be a key"):
        route_array(np.zeros(2, dtype=dtype))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_that_are_no_keys_are_an_error_with_the_remedy(column: Any) -> None:
    with pytest.raises(RoutingError, match=r"column of type .* cannot be a key: use numbers.* cast them to strings"):
        route_column(column)


class Weight(pa.ExtensionType):  # type: ignore[misc]  # whose type is unknown to mypy
    """A type of somebody's own. That it can be compared with others is all that Arrow asks of it, so it has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.weight")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Weight:
        return cls()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weight)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_type_of_ones_own_is_no_key_whatever_the_number_of_workers(workers: int) -> None:
    column = pa.ExtensionArray.from_storage(Weight(), pa.array([1, 2]))
    with pytest.raises(RoutingError, match="a column of type extension.* cannot be a key"):
        Exchange("weight").parts(0, pa.record_batch({"weight": column}), workers)


# -- checksums -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [511, 512, 513, 2000])
def test_checksums_of_many_pieces_in_blocks(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_BLOCK", 700)
    chance = random.Random(count)
    pieces = [chance.randbytes(chance.choice([0, 1, 5, 5, 9, 63, 64, 65, 300])) for _ in range(count)]
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    assert checksums(data, np.cumsum(lengths) - lengths, lengths).tolist() == [zlib.crc32(piece) for piece in pieces]


# -- exchange by name -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-9, 9), st.text("abc", max_size=3))), WORKERS)
def test_partitioning_by_two_columns_is_partitioning_by_a_pair(rows: list[tuple[int, str]], workers: int) -> None:
    batch = pa.record_batch({"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())})
    array = np.array(rows, dtype=[("a", "i8"), ("b", "U3")])
    by_list = dict(Exchange(lambda row: row).parts(0, rows, workers))
    by_arrow = dict(Exchange(["a", "b"]).parts(0, batch, workers))
    by_numpy = dict(Exchange(("a", "b")).parts(0, array, workers))
    assert {w: [tuple(row.values()) for row in part.to_pylist()] for w, part in by_arrow.items()} == by_list
    assert {w: part.tolist() for w, part in by_numpy.items()} == by_list
    swapped = dict(Exchange(["b", "a"]).parts(0, batch, workers))
    by_pair = dict(Exchange(lambda row: (row[1], row[0])).parts(0, rows, workers))
    assert {w: part.num_rows for w, part in swapped.items()} == {w: len(part) for w, part in by_pair.items()}


ARRAY = np.array([(1, "x")], dtype=[("a", "i8"), ("b", "U3")])
WIDE = np.zeros(2, dtype=[("a", "i8", (2,)), ("b", "i8")])
BATCH = pa.record_batch({"a": [1], "b": ["x"]})
TWINS = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])


@pytest.mark.parametrize(
    ("batch", "key", "words"),
    [
        (BATCH, "c", "no column 'c'; the batch has 'a', 'b'"),
        (BATCH, ["a", "c"], "no column 'c'"),
        (BATCH, [], "at least one column"),
        (BATCH, lambda row: row, "by the name of a column"),
        (TWINS, "a", "2 columns 'a' in the batch"),
        (ARRAY, "c", "no column 'c'; the array has 'a', 'b'"),
        (WIDE, "a", r"the array has shape \(2,\), and its key has shape \(2, 2\)"),
        (WIDE, ["b", "a"], r"its key has shape \(2, 2\)"),
        (np.zeros((2, 3), ARRAY.dtype), "a", r"its key has shape \(2, 3\)"),
        (np.arange(3), lambda some: some[:2], r"its key has shape \(2,\)"),
        (np.arange(3), "c", "an array of type int64 has no column 'c'"),
        ([1, 2], "c", "a list of records has no column 'c'"),
        ([1, 2], ["c"], "a list of records has no column"),
        (pa.table({"a": [1]}), "a", r"type Table cannot be exchanged: send the batches of its to_batches\(\)"),
        ({"a": 1}, "a", r"type dict cannot be exchanged: give its type a method partition\(key, workers\)"),
    ],
)
def test_wrong_keys_and_containers(batch: Any, key: Any, words: str) -> None:
    for workers in (1, 2):
        with pytest.raises(RoutingError, match=words):
            Exchange(key).parts(0, batch, workers)


# -- no detour -----------------------------------------------------------------------------------------------------------


class Untouchable(np.ndarray[Any, Any]):
    """An array that nobody may take apart."""

    def __iter__(self) -> Any:
        raise AssertionError("an array was iterated over")

    def tolist(self) -> Any:
        raise AssertionError("an array was made a list")

    def item(self, *args: Any) -> Any:
        raise AssertionError("an element was taken out of an array")


@pytest.mark.parametrize("kind", ["string", "dictionary", "int", "several", "array of strings", "array"])
def test_no_value_of_a_column_is_routed_on_its_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = pa.array([f"key {i} é" for i in range(1000)])
    batch = pa.record_batch({"k": text, "d": text.dictionary_encode(), "i": pa.array(range(1000))})
    cases: dict[str, tuple[Any, Any]] = {
        "string": (batch, "k"),
        "dictionary": (batch, "d"),
        "int": (batch, "i"),
        "several": (batch, ["k", "i", "d"]),
        "array of strings": (np.array(text.to_pylist()).view(Untouchable), lambda array: array),
        "array": (np.arange(1000).view(Untouchable), lambda array: array),
    }

    def refuse(key: object) -> int:
        raise AssertionError("a key was routed on its own")

    monkeypatch.setattr(keys, "route", refuse)
    monkeypatch.setattr(container, "route", refuse)
    given_, key = cases[kind]
    parts = Exchange(key).parts(0, given_, 3)
    assert sum(len(part) for _, part in parts) == 1000
    assert {type(part) for _, part in parts} == {type(given_)}
