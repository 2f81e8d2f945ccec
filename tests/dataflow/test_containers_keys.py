"""Keys of every kind, rare ones too, go to the same worker in lists, Arrow batches and NumPy arrays; partitioning loses nothing.

White box: short and long columns, few workers and many take different paths to one result, so the limits between them are moved;
checksums are compared with those of ``zlib``.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import random
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from timely import Exchange, RoutingError
from timely.dataflow import route, route_array, route_column
from timely.dataflow.containers import container, keys, partition_arrays
from timely.dataflow.containers.keys import checksums
from timely.dataflow.containers.partition_arrays import partition_array

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


FLOATS = st.floats() | st.integers(-5, 5).map(float) | st.sampled_from([0.5, 2.0**63, -(2.0**63), 2.0**64, 1e300, -0.0])
NUMBERS = FLOATS | st.decimals(allow_nan=False, places=2) | st.fractions() | st.integers() | st.booleans()


@given(st.lists(st.times()))
def test_times_of_day_go_where_they_go_as_a_column(times: list[datetime.time]) -> None:
    for kind in (pa.time64("us"), pa.time64("ns")):
        assert route_column(pa.array(times, pa.time64("us")).cast(kind)).tolist() == [route(time) for time in times]
    whole = [time.replace(microsecond=0) for time in times]
    assert route_column(pa.array(whole, pa.time32("s"))).tolist() == [route(time) for time in whole]


class Color(enum.Enum):
    RED = 1
    BLUE = object()


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    TEA = "tea"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float
    label: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Loud:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud) and self.name.lower() == other.name.lower()


@attrs.frozen
class Pair:
    left: Any
    right: str = attrs.field(eq=str.lower)


@attrs.frozen(eq=False)
class Alone:
    number: int


class Centimetres(float):
    pass


class Names(frozenset[str]):
    pass


def everything() -> list[Any]:
    number = uuid.UUID(int=12345678901234567890)
    return [
        (0.1, Decimal("0.5"), Fraction(1, 3), math.inf, -math.inf, 1e300),
        (Color.RED, Color.BLUE, Access.READ | Access.WRITE, number),
        frozenset([1, "a", frozenset(["b", 2.5])]),
        (Point(1.5, 2.0), Pair(None, "A")),
        ("abc", b"abc", "é", -5, None),
    ]


def equals_of(number: Any) -> list[Any]:
    """Return the number in every type that has it exactly."""
    if isinstance(number, float | Decimal) and not math.isfinite(number):
        return [Decimal(number), np.float64(number), Centimetres(number)]
    collected: list[Any] = [number, Fraction(number)]
    if isinstance(number, float | Decimal):
        collected.append(Decimal(number))
    if Fraction(number).denominator == 1:
        collected += [int(number), Decimal(int(number)) * Decimal("1.0") if abs(number) < 10**20 else int(number)]
    try:
        rounded = float(number)
    except OverflowError:
        return collected
    if rounded == number:
        collected += [rounded, Centimetres(rounded), np.float64(rounded)]
    return collected


@given(NUMBERS)
@example(True)
@example(Decimal("100000000000000000000.1"))
@example(10**400)
def test_equal_numbers_go_to_one_worker(number: Any) -> None:
    if number != number:
        assert route(number) == route(Decimal("NaN")) == 0
        return
    for other in equals_of(number):
        assert other == number
        assert route(other) == route(number), (other, type(other))
        assert route((other, "x")) == route((number, "x"))


def test_what_is_equal_to_its_base_goes_where_that_goes() -> None:
    assert (route(Level.HIGH), route(Word.TEA), route(Names("ab"))) == (3, route("tea"), route(frozenset("ba")))
    assert route(-0.0) == route(0.0) == 0
    assert route(frozenset([1, 2])) == route(frozenset([2.0, True]))
    assert route(Point(1, 2, "a")) == route(Point(1.0, Decimal(2), "b"))  # type: ignore[arg-type]
    assert route(Pair(1, "A")) == route(Pair(1.0, "a"))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.longdouble, ">f8"])
@given(values=st.lists(FLOATS))
@example(values=[1e300, -1e300, 0.5, math.nan, math.inf, -0.0])
def test_arrays_of_floats_go_where_the_floats_go(kind: Any, values: list[float]) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values, np.float64).astype(kind)
    assert route_array(array).tolist() == [route(value) for value in array.astype(np.float64).tolist()]
    assert route_array(array).tolist() == [route(value) for value in array]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16(), pa.dictionary(pa.int32(), pa.float64())])
@given(values=st.lists(FLOATS | st.none()), workers=st.integers(1, 5))
@example(values=[1e300, -1e300, 3.0, None, 0.5], workers=2)
def test_columns_of_floats_go_where_the_floats_go(kind: Any, values: list[float | None], workers: int) -> None:
    with np.errstate(over="ignore"):
        if kind == pa.float16():
            values = [None if value is None else float(np.float16(value)) for value in values]
        elif kind == pa.float32():
            values = [None if value is None else float(np.float32(value)) for value in values]
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    column = pa.array(values, plain)
    column = column.dictionary_encode() if kind != plain else column
    assert route_column(column).tolist() == [route(value) for value in values]
    batch = pa.record_batch({"k": column, "row": list(range(len(values)))})
    parts = {row: worker for worker, part in Exchange("k").parts(0, batch, workers) for row in part["row"].to_pylist()}
    assert parts == {row: route(value) % workers for row, value in enumerate(values)} or workers == 1
    parts = {row: worker for worker, part in Exchange(["k", "k"]).parts(0, batch, workers) for row in part["row"].to_pylist()}
    assert parts == {row: route((value, value)) % workers for row, value in enumerate(values)} or workers == 1


@given(st.lists(st.decimals(-(10**9), 10**9, places=3) | st.none()))
def test_columns_of_decimals_go_where_the_decimals_go(values: list[Decimal | None]) -> None:
    column = pa.array(values, pa.decimal128(20, 3))
    assert route_column(column).tolist() == [route(value) for value in values]


def test_columns_of_the_bytes_of_a_uuid_go_where_it_goes() -> None:
    number = uuid.uuid4()
    assert route_column(pa.array([number.bytes], pa.binary(16))).tolist() == [route(number)]


def test_keys_are_spread_over_the_workers() -> None:
    for values in (
        [number / 2 for number in range(1, 400, 2)],
        [uuid.UUID(fields=(0x941BB2D7 + number, 0xE963, 0x11F1, 0x80, number, 1)) for number in range(200)],
        [frozenset([number]) for number in range(200)],
        [Fraction(1, number) for number in range(2, 202)],
    ):
        for workers in (2, 4, 7):
            counts = [sum(route(key) % workers == worker for key in values) for worker in range(workers)]
            assert min(counts) > 100 / workers, (values[0], counts)


def test_routes_are_the_same_in_a_process_with_another_seed() -> None:
    script = "from tests.dataflow.test_containers_keys import everything; from timely.dataflow import route;"
    script += "print([route(key) for key in everything()])"
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}  # this process has a seed by chance
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == f"{[route(key) for key in everything()]}\n"


NO_KEYS: list[Any] = [Loud("a"), Alone(1), object(), Point(1j, 0), Decimal("1e1000000000")]  # type: ignore[arg-type]
NO_KEYS += [1j, np.complex64(1), (1, 2.5j), [1], {"a": 1}, frozenset([object()]), datetime.time(1, tzinfo=datetime.UTC)]


@pytest.mark.parametrize("key", NO_KEYS)
def test_a_key_that_has_no_place_is_refused_and_the_message_names_key(key: Any) -> None:
    with pytest.raises(RoutingError, match="give key=, a function"):
        route(key)


def test_operators_bring_equal_keys_together_whatever_their_type() -> None:
    keys: list[Any] = [0.5, Fraction(1, 2), Decimal("0.5"), Color.RED, 1, 1.0, True, frozenset("ab"), Point(1, 2), Point(1.0, 2)]
    expected = {0.5: 3, Color.RED: 1, 1: 3, frozenset("ab"): 1, Point(1, 2): 2}

    def program(worker: timely.Worker) -> tuple[dict[Any, int], list[Any], int]:
        with worker.dataflow(int) as scope:
            records = scope.to_stream([key for place, key in enumerate(keys) if place % worker.peers == worker.index])
            counts = records.value_counts().capture()
            different = records.distinct().capture()
            pairs = records.map(lambda key: (key, 1))
            joined = pairs.join(pairs).capture()
        worker.run()
        return (
            {key: count for _, batch in counts.extract() for key, count in batch},
            [key for _, batch in different.extract() for key in batch],
            sum(len(batch) for _, batch in joined.extract()),
        )

    for workers in (1, 3):
        results = timely.execute(program, workers=workers)
        assert {key: count for counts, _, _ in results for key, count in counts.items()} == expected
        assert sum(len(different) for _, different, _ in results) == len(expected)
        assert sum(pairs for _, _, pairs in results) == sum(count**2 for count in expected.values())


def identity(key: Any) -> Any:
    return key


def test_one_worker_refuses_the_keys_that_several_refuse() -> None:
    lists: list[Any] = [[1, "a", 1.5j], [None, (1, 2.5j)], [object()], [(1, ("a", (2, 1.5j))), 3]]
    for records in lists:
        for workers in (1, 2):
            with pytest.raises(RoutingError):
                Exchange(identity).parts(0, records, workers)
    columns: list[Any] = [np.array([1.5j]), np.array([1, 1.5j, None], object)]
    for array in columns:
        for workers in (1, 2):
            with pytest.raises(RoutingError):
                Exchange(identity).parts(0, array, workers)
    for workers in (1, 2):
        with pytest.raises(RoutingError, match="column of type list.* cannot be a key"):
            Exchange("k").parts(0, pa.record_batch({"k": [[1]]}), workers)


def test_numpy_scalars_are_whole_numbers() -> None:
    assert [route(np.int64(-3)), route(np.uint8(7)), route(True)] == [-3, 7, 1]


numbers = st.lists(st.integers(0, 2**40), max_size=30).map(lambda values: np.array(values, np.int64))

SHAPES: dict[str, Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]] = {
    "a column": lambda keys: keys,
    "short numbers": lambda keys: keys.astype(np.int16),
    "columns": lambda keys: np.vstack((keys, keys + 1)).T,
    "rows": lambda keys: np.ascontiguousarray(np.vstack((keys, keys + 1)).T),
    "every other": lambda keys: np.repeat(keys, 2)[::2],
    "backwards": lambda keys: keys[::-1],
    "fields": lambda keys: np.array([(key, key / 2) for key in keys.tolist()], [("a", np.int64), ("b", np.float64)]),
    "objects": lambda keys: np.array([*map(str, keys), None], object)[:-1],
    "texts": lambda keys: keys.astype(str),
    "cubes": lambda keys: np.repeat(keys, 4).reshape(-1, 2, 2),
    "columns of columns": lambda keys: np.asfortranarray(np.repeat(keys, 4).reshape(-1, 2, 2)),
}


@pytest.mark.parametrize("shape", SHAPES)
@given(numbers, st.integers(2, 12), st.sampled_from([0, 9]))
def test_every_row_goes_to_its_worker_in_order(shape: str, keys: npt.NDArray[np.int64], workers: int, few: int) -> None:
    batch = SHAPES[shape](keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_arrays, "_FEW", few)
        parts = partition_array(batch, lambda _: keys, workers)
    assert [worker for worker, _ in parts] == sorted(set((keys % workers).tolist()))
    for worker, part in parts:
        np.testing.assert_array_equal(part, batch[keys % workers == worker])
        assert part.dtype == batch.dtype


def test_masks_stay() -> None:
    batch = np.ma.array([1, 2, 3, 4], mask=[True, False, False, True])
    parts = dict(partition_array(batch, lambda _: np.array([0, 1, 0, 1]), 2))
    assert [part.tolist() for part in parts.values()] == [[None, 3], [2, None]]


def test_what_goes_to_one_worker_is_not_copied() -> None:
    for batch in (np.array([3, 1, 5]), np.zeros((2, 3)).T):
        [(worker, part)] = partition_array(batch, lambda _: np.array([3, 1, 5]), 2)
        assert (worker, part is batch) == (1, True)


def test_columns_stay_columns() -> None:
    """Parts of columns that lie one after the other lie so, too."""
    batch: npt.NDArray[Any] = np.arange(8).reshape(2, 4).T
    assert all(part.flags.f_contiguous for _, part in partition_array(batch, lambda array: array[:, 0], 2))
