"""Keys: the number that a record is routed by. Record ``r`` goes to worker ``route(key(r)) % workers``.

Equal keys have equal numbers in every container, type, process and machine, so nothing here uses Python's seeded ``hash``. What
each type's number is stands in ``docs/extending.md``. NumPy and Arrow are imported only where such a column occurs.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import operator
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from timely.errors import RoutingError, brief

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction

    import numpy as np
    import pyarrow as pa

    Numbers: TypeAlias = np.ndarray[Any, Any]

Key: TypeAlias = Callable[[Any], Any] | str | Sequence[str]
"""A function of the record; for Arrow batches and structured arrays the name of a column, or several, which count as a tuple.
For arrays the function takes the whole array."""

Parts: TypeAlias = list[tuple[int, Any]]
"""Pairs ``(worker, part)``, in order of worker, no part empty."""

_SEED: Final = 17
_FACTOR: Final = 1_000_003
_MASK: Final = 0xFFFFFFFF
_GOLDEN: Final = 0x9E3779B97F4A7C15
_EXACT: Final = 1 << 53
"""From here on up every ``float`` is whole."""
_DIGITS: Final = 10_000
"""The most digits of a ``Decimal``, which an exponent can make arbitrarily long."""
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_NAIVE: Final = datetime.datetime(1970, 1, 1)
_AWARE: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_DAY: Final = 24 * 60 * 60 * 1000
"""Milliseconds."""
_LONG: Final = 64
"""Bytes of a value from which on one call of the checksum costs less than a pass over all values for each byte."""
_FEW: Final = 512
"""Values up to which one call of the checksum for each costs less, for a column by way of Python's bytes."""
_BLOCK: Final = 1 << 15
"""Values whose checksums are computed together: as many as a processor's cache holds."""


def route(key: object) -> int:
    """Return the number that ``key`` is routed by: the record goes to that number modulo the number of workers.

    A key is a number, a string, bytes, a date, a ``datetime``, ``timedelta`` or ``time``, a UUID, a member of an enumeration,
    ``None``, or a tuple, ``frozenset``, data class or attrs class of such. ``RoutingError`` for any other, and for a class with
    its own ``__eq__``. ``None`` and NaN go where 0 goes.

    >>> route(7), route(None), route("abc") == route(b"abc"), route((1, "a")) == route((1, "a"))
    (7, 0, True, True)
    >>> from fractions import Fraction
    >>> route(7.0), route(0.5) == route(Fraction(1, 2)), route(frozenset("ab")) == route(frozenset("ba"))
    (7, True, True)
    """
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, int):
        return int(key)
    if isinstance(key, bytes):
        return zlib.crc32(key)
    if isinstance(key, tuple):
        number = _SEED
        for part in key:
            number = (number * _FACTOR + route(part)) & _MASK
        return number
    if key is None:
        return 0
    return _router(type(key))(key)  # type: ignore[arg-type]  # a type is hashable


@functools.lru_cache
def _router(kind: type) -> Callable[[Any], int]:
    from decimal import Decimal
    from fractions import Fraction
    from uuid import UUID

    rarer: list[tuple[type, Callable[[Any], int]]] = [
        (float, _of_number),
        (datetime.datetime, _of_instant),
        (datetime.date, lambda key: key.toordinal() - _EPOCH),
        (datetime.timedelta, lambda key: key // _MICROSECOND),
        (datetime.time, _of_clock),
        (Decimal, _of_decimal),
        (Fraction, _of_number),
        (UUID, lambda key: zlib.crc32(key.bytes)),
        (frozenset, lambda key: (_SEED + sum(_mixed(route(member) & _MASK) for member in key)) & _MASK),
    ]
    for base, number_of in rarer:
        if issubclass(kind, base):
            return number_of
    if hasattr(kind, "__index__"):
        return lambda key: int(operator.index(key))
    if kind.__module__ == "numpy":
        return _of_scalar
    if issubclass(kind, enum.Enum) and kind.__eq__ is object.__eq__:
        # some versions of Python give combinations of flags no name
        return (lambda key: route(key.value)) if issubclass(kind, enum.Flag) else lambda key: route(key.name)
    parts = _parts(kind)
    return _refuse if parts is None else lambda key: route(parts(key))


def _of_clock(key: datetime.time) -> int:
    if key.tzinfo is not None:
        return _refuse(key)
    return ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond


def _refuse(key: object) -> int:
    raise RoutingError(
        "a key must be a number, a string, bytes, a date, an instant, a span of time, a UUID, a member of an enumeration, or a"
        f" tuple, frozenset, data class or attrs class of such with the generated __eq__. {brief(key)} is of type"
        f" {type(key).__name__}: give key=, a function that returns one of these, equal for equal records"
    )


def _of_number(key: float | Fraction | Decimal) -> int:
    """Return a whole number itself, and for any other the bits of the nearest ``float``: the same for every numeric type."""
    try:
        whole = int(key)
    except ValueError:  # NaN
        return 0
    except OverflowError:  # an infinity
        return _mixed_bits(float(key))
    return whole if whole == key or abs(whole) >= _EXACT else _mixed_bits(float(key))


def _mixed_bits(number: float) -> int:
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return _mixed(bits)


def _mixed(bits: int) -> int:
    """Return 32 bits that depend on all 64: the lower half of many a ``float`` is 0."""
    return ((bits ^ bits >> 32) * _GOLDEN >> 32) & _MASK


def _of_decimal(key: Decimal) -> int:
    if key.adjusted() >= _DIGITS:
        raise RoutingError(f"{brief(key)} has too many digits to be a key: give key=, a function that returns fewer of them")
    return _of_number(key)


def _of_instant(key: datetime.datetime) -> int:
    if key != key:  # pandas' NaT
        return 0
    return (key - (_NAIVE if key.tzinfo is None else _AWARE)) // _MICROSECOND


def _of_scalar(key: Any) -> int:
    kind = key.dtype.kind
    if kind == "f":
        return _of_number(key)
    if kind not in ("b", "M", "m"):
        return _refuse(key)
    import numpy as np

    return int(route_array(np.asarray([key]))[0])


def _parts(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return a function to the compared fields of data and attrs classes; ``None`` without the generated ``__eq__``."""
    owner = next(base for base in kind.__mro__ if "__eq__" in base.__dict__)
    code = getattr(owner.__dict__["__eq__"], "__code__", None)
    if "__attrs_attrs__" in owner.__dict__ and code is not None and code.co_filename.startswith("<attrs generated "):
        compared = [(attribute.name, attribute.eq_key) for attribute in attrs.fields(owner) if attribute.eq]
        return lambda key: tuple(
            getattr(key, name) if change is None else change(getattr(key, name)) for name, change in compared
        )
    if "__dataclass_fields__" in owner.__dict__ and code is not None:
        names = [field.name for field in dataclasses.fields(owner) if field.compare]
        generated = dataclasses.make_dataclass("Generated", [(name, object) for name in names]).__eq__.__code__
        if (code.co_code, code.co_names, code.co_consts) == (generated.co_code, generated.co_names, generated.co_consts):
            return lambda key: tuple(getattr(key, name) for name in names)
    return None


# -- columns -----------------------------------------------------------------------------------------------------------


def route_column(column: pa.Array) -> Numbers:
    """Return the routing numbers of an Arrow column, each the same as ``route`` of the value.

    They are int64, uint64 for a column of that type, or Python's integers where some are too large. ``RoutingError`` for a type
    that cannot be routed.

    >>> import pyarrow as pa
    >>> route_column(pa.array([7, None, -1])).tolist()
    [7, 0, -1]
    >>> route_column(pa.array(["a", "b"])).tolist() == [route("a"), route("b")]
    True
    """
    import pyarrow as pa

    kind, is_ = column.type, pa.types
    if is_.is_integer(kind) or is_.is_boolean(kind):
        return _plain(column if is_.is_int64(kind) or is_.is_uint64(kind) else column.cast(pa.int64()))
    if is_.is_dictionary(kind):
        return _of_dictionary(column)
    if is_.is_null(kind):
        return _plain(column.cast(pa.int64()))
    if is_.is_date32(kind) or is_.is_timestamp(kind) or is_.is_duration(kind):
        return _of_times(column.to_numpy(zero_copy_only=False))
    if is_.is_time(kind):
        return _plain(column.cast(pa.time64("us"), safe=False).cast(pa.int64()))
    if is_.is_date64(kind):  # Arrow does not check that it is midnight
        return _plain(column.cast(pa.int64())) // _DAY
    if _is_text(kind):
        return _of_text(column)
    if is_.is_floating(kind):
        return _of_floats(column.to_numpy(zero_copy_only=False))
    if is_.is_decimal(kind):
        return _of_objects(column.to_pylist())
    raise RoutingError(
        f"a column of type {kind} cannot be a key: use numbers, strings or bytes (or dates and instants), or cast them to strings"
    )


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_ = pa.types
    text = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
    binary = is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind)
    return bool(text or binary or is_.is_fixed_size_binary(kind))


def _plain(column: pa.Array) -> Numbers:
    """Return a column of int64 or uint64 as an array, with 0 for nulls; ``to_numpy`` would release the lock four times."""
    import numpy as np
    import pyarrow as pa

    if column.null_count:
        column = column.fill_null(0)
    kind = np.uint64 if pa.types.is_uint64(column.type) else np.int64
    if not len(column):
        return np.empty(0, kind)  # there may be no buffer
    return np.frombuffer(column.buffers()[1], kind, len(column), 8 * column.offset)


def _of_dictionary(column: pa.DictionaryArray) -> Numbers:
    import numpy as np
    import pyarrow as pa

    of_values = route_column(column.dictionary)
    of_values = np.append(of_values, of_values.dtype.type(0))  # the last is for nulls
    places = column.indices.cast(pa.int64()).fill_null(len(of_values) - 1)
    numbers: Numbers = of_values[places.to_numpy(zero_copy_only=False)]
    return numbers


def _of_text(column: pa.Array) -> Numbers:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    column = column.cast(pa.large_binary())
    if len(column) <= _FEW:
        values = (pc.fill_null(column, b"") if column.null_count else column).to_pylist()
        return np.fromiter(map(zlib.crc32, values), np.int64, len(values))  # crc32(b"") is 0, the number of nulls
    _, bounds_buffer, data_buffer = column.buffers()
    bounds = np.frombuffer(bounds_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    numbers = checksums(data, bounds[:-1], np.diff(bounds))
    if column.null_count:
        numbers[pc.is_null(column).to_numpy(zero_copy_only=False)] = 0
    return numbers


# -- arrays ------------------------------------------------------------------------------------------------------------


def route_array(array: Numbers) -> Numbers:
    """Return the routing numbers of a one-dimensional NumPy array, each the same as ``route`` of the element.

    >>> import numpy as np
    >>> route_array(np.array([True, False])).tolist()
    [1, 0]
    >>> route_array(np.array(["a", "é"])).tolist() == [route("a"), route("é")]
    True
    """
    import numpy as np

    kind = array.dtype.kind
    if kind in "iu":
        large = kind == "u" and array.dtype.itemsize == 8
        return array.astype(np.uint64 if large else np.int64, copy=False)  # either way in this machine's byte order
    if kind == "b":
        return array.astype(np.int64)
    if kind in "US":
        return _of_fixed_text(array)
    if kind in "Mm":
        return _of_times(array)
    if kind == "O" or (kind == "f" and array.dtype.itemsize > 8):
        return _of_objects(array)
    if kind == "f":
        return _of_floats(array)
    raise RoutingError(
        f"an array of type {array.dtype} cannot be a key, which must give one number for each of its rows, or one string"
    )


def _of_floats(array: Numbers) -> Numbers:
    import numpy as np

    values = array.astype(np.float64)
    bits = values.view(np.uint64)
    numbers: Numbers = ((bits ^ bits >> np.uint64(32)) * np.uint64(_GOLDEN) >> np.uint64(32)).astype(np.int64)
    whole = np.trunc(values) == values
    short = whole & (np.abs(values) < 2.0**63)
    numbers[short] = values[short].astype(np.int64)
    numbers[np.isnan(values)] = 0
    long = whole & ~short & np.isfinite(values)
    if long.any():
        numbers = numbers.astype(object)
        numbers[long] = [int(value) for value in values[long].tolist()]
    return numbers


def _of_objects(array: Iterable[Any]) -> Numbers:
    """Return the numbers of Python objects, as objects where some are too large for int64."""
    import numpy as np

    numbers = [route(key) for key in array]
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        return np.array(numbers, dtype=object)


def _of_times(array: Numbers) -> Numbers:
    """Return days for dates, and whole microseconds for instants and durations; 0 for NaT."""
    import numpy as np

    unit, _ = np.datetime_data(array.dtype)
    if array.dtype.kind == "M" and unit in ("Y", "M", "W", "D"):
        numbers = array.astype("M8[D]").astype(np.int64)
    elif unit == "ns":
        numbers = array.astype(f"{array.dtype.kind}8[ns]").astype(np.int64) // 1000
    elif unit in ("us", "ms", "s", "m", "h", "D", "W"):
        numbers = array.astype(f"{array.dtype.kind}8[us]").astype(np.int64)
    else:
        raise RoutingError(f"an array of type {array.dtype} cannot be a key: use a unit from nanoseconds to weeks")
    numbers[np.isnat(array)] = 0
    return numbers


def _of_fixed_text(array: Numbers) -> Numbers:
    """Return the numbers of strings or bytes that are padded with zeros to one width."""
    import numpy as np

    width = array.dtype.itemsize
    if width == 0 or len(array) == 0:
        return np.zeros(len(array), np.int64)
    array = np.ascontiguousarray(array)
    if array.dtype.kind == "U":
        codes = array.astype(array.dtype.newbyteorder("=")).view(np.uint32)
        ascii_only = codes.max(initial=0) < 128
        array = array.astype("S") if ascii_only else np.char.encode(array, "utf-8", "surrogatepass")
        width = array.dtype.itemsize
    table = array.view(np.uint8).reshape(len(array), width)
    filled = table != 0
    lengths = np.where(filled.any(axis=1), width - np.argmax(filled[:, ::-1], axis=1), 0)
    return checksums(table.reshape(-1), np.arange(len(array)) * width, lengths)


# -- several columns, and text -----------------------------------------------------------------------------------------


def combined(parts: Sequence[Numbers]) -> Numbers:
    """Return the routing numbers of tuples, given those of their parts, each the same as ``route`` of the tuple."""
    import numpy as np

    numbers = np.full(len(parts[0]), _SEED, np.uint64)
    for part in parts:
        part = part if part.dtype != object else part & _MASK
        numbers = (numbers * np.uint64(_FACTOR) + part.astype(np.uint64)) & np.uint64(_MASK)
    return numbers.astype(np.int64)


@functools.cache
def _table() -> Numbers:
    import numpy as np

    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table


def checksums(data: Numbers, starts: Numbers, lengths: Numbers) -> Numbers:
    """Return the CRC-32 of ``data[start : start + length]`` for each pair, as int64."""
    import numpy as np

    numbers = np.empty(len(starts), np.int64)
    for at in range(0, len(starts), _BLOCK):
        block = slice(at, at + _BLOCK)
        sums = _checksums_together if len(starts) - at > _FEW else _checksums_one_by_one
        numbers[block] = sums(data, starts[block], lengths[block])
    return numbers


def _checksums_one_by_one(data: Numbers, starts: Numbers, lengths: Numbers) -> list[int]:
    raw = data.data
    return [zlib.crc32(raw[start : start + length]) for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]


def _checksums_together(data: Numbers, starts: Numbers, lengths: Numbers) -> Numbers:
    """Process the first byte of all pieces, then the second, and so on, with the longest pieces in front."""
    import numpy as np

    table = _table()
    order = np.argsort((_LONG - np.minimum(lengths, _LONG)).astype(np.uint8), kind="stable")  # NumPy sorts bytes by counting
    at, sizes = starts[order].astype(np.int64), lengths[order]
    sums = np.full(len(order), _MASK, np.uint32)
    going_on = np.searchsorted(-sizes, -np.arange(min(int(sizes[0]), _LONG)), side="left")
    for position, count in enumerate(going_on.tolist()):
        now = sums[:count]
        sums[:count] = table[(now ^ data[at[:count] + position]) & np.uint32(0xFF)] ^ (now >> np.uint32(8))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = sums ^ np.uint32(_MASK)
    long = np.flatnonzero(lengths >= _LONG)
    numbers[long] = _checksums_one_by_one(data, starts[long], lengths[long])
    return numbers
