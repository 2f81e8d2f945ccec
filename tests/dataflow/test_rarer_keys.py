"""Keys of rarer types: equal ones go to one worker, whatever type each is of and whatever container it came in."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import subprocess
import sys
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timely
from timely import Exchange, RoutingError
from timely.dataflow import route, route_array, route_column

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
    for keys in (
        [number / 2 for number in range(1, 400, 2)],
        [uuid.UUID(fields=(0x941BB2D7 + number, 0xE963, 0x11F1, 0x80, number, 1)) for number in range(200)],
        [frozenset([number]) for number in range(200)],
        [Fraction(1, number) for number in range(2, 202)],
    ):
        for workers in (2, 4, 7):
            counts = [sum(route(key) % workers == worker for key in keys) for worker in range(workers)]
            assert min(counts) > 100 / workers, (keys[0], counts)


def test_routes_are_the_same_in_a_process_with_another_seed() -> None:
    script = "from tests.dataflow.test_rarer_keys import everything; from timely.dataflow import route;"
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
