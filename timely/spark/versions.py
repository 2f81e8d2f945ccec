"""What differs between the versions of PySpark: this module alone asks which one is installed.

Invariant: importing it with a PySpark that the library does not run on raises :class:`~timely.errors.ConfigurationError`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

from timely.errors import ConfigurationError, SparkError

_COLUMN: Final = "timely partition"


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def check_version(version: str) -> None:
    """Raise :class:`~timely.errors.ConfigurationError` for a version of PySpark that is neither 3.5 nor 4.x."""
    if not (3, 5) <= _release(version) < (5, 0):
        raise ConfigurationError(f"timely.spark needs Spark 3.5 or later, before 5.0; this is PySpark {version}")


check_version(pyspark.__version__)

is_remote_only: Final[Callable[[], bool]] = getattr(pyspark.util, "is_remote_only", lambda: False)
"""Returns whether this is the client of Spark Connect alone, of which there is none before 4.0."""

_UTC: Final[dict[str, Any]] = (  # what says that instants are in UTC; up to 4.1 they are unless one says otherwise
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)


def parsed_type(text: str) -> DataType:
    """Return the type that a DDL string stands for, in a classic session. Raises what Spark raises."""
    return _parse_datatype_string(text)  # DataType.fromDDL, which 3.5 has not, is this


HAS_CONNECT: Final = _release(pyspark.__version__) >= (4, 0)
"""Whether sessions of Spark Connect have what runs need: observations, and all settings at once."""

KEEPS_EMPTY_SHUFFLES: Final = _release(pyspark.__version__) >= (4, 0)
"""Whether a shuffle that turns out to be empty while Spark runs is not taken for nothing at all, unless it is sorted."""

NUMBERED_BY_PARTITION: Final = _release(pyspark.__version__) >= (4, 0)
"""Whether the numbers of a barrier stage's tasks are in the order of their partitions."""


def attempt_of(task: BarrierTaskContext) -> int:
    """Return what all tasks of an attempt of a barrier stage give, and no others: the least number of its tasks.

    Spark numbers them in one go, so a later attempt gives a greater one.
    """
    if NUMBERED_BY_PARTITION:
        return task.taskAttemptId() - task.partitionId()
    return min(map(int, gathered(task, str(task.taskAttemptId()))))  # takes about a second


START_WITHIN = 120.0
"""Seconds that the tasks of an attempt have to meet."""


def gathered(task: BarrierTaskContext, text: str = "") -> list[str]:
    """Return the texts of all tasks of an attempt, by partition. ``SparkError`` where one has not come in time.

    Spark leaves the others running where a task fails to fetch its rows: they would keep their slots from the next attempt.
    """
    texts: Future[list[str]] = Future()

    def gather() -> None:
        try:
            texts.set_result(task.allGather(text))
        except Exception as error:
            texts.set_exception(error)

    threading.Thread(target=gather, name="timely-gather", daemon=True).start()
    try:
        return texts.result(START_WITHIN)
    except TimeoutError:
        raise SparkError(
            f"worker {task.partitionId()} waited in vain for the others of its attempt: one has failed, or has not started, as"
            " the executors' logs must say"
        ) from None


def arrow_type(kind: DataType) -> Any:
    """Return the ``pyarrow.DataType`` that Spark has for ``kind``, with instants in UTC. Raises what Spark raises."""
    return to_arrow_type(kind, **_UTC)


def arrow_schema(schema: StructType) -> Any:
    """Return the ``pyarrow.Schema`` that Spark has for ``schema``, with instants in UTC."""
    return to_arrow_schema(schema, **_UTC)


def spark_schema(schema: Any) -> StructType:
    """Return Spark's schema for a ``pyarrow.Schema``: a timestamp without a zone is ``timestamp_ntz``."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def batches_from_java(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark hands to a Python worker, with offsets in all their arrays.

    Before 4.2 Java leaves out the one offset of an array without elements, and pyarrow reads what is beyond the buffer. No
    array that comes from Java is a slice of another.
    """
    return map(_with_offsets, batches) if _release(pyspark.__version__) < (4, 2) else iter(batches)


def _with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` with new arrays in place of those without elements, at any depth.

    >>> inner = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    >>> outer = pa.Array.from_buffers(pa.list_(pa.string()), 1, [None, pa.py_buffer(bytes(8))], children=[inner])
    >>> rebuilt = _with_offsets(pa.record_batch({"texts": outer}))
    >>> rebuilt["texts"].to_pylist(), rebuilt["texts"].values.buffers()[1].size
    ([[]], 4)
    """
    return pa.RecordBatch.from_arrays([_array_with_offsets(column) for column in batch.columns], schema=batch.schema)


def _array_with_offsets(array: pa.Array) -> pa.Array:
    kind = array.type
    if not len(array):
        return pa.array([], kind)
    if pa.types.is_struct(kind):
        children = [array.field(position) for position in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=[kind.key_field, kind.item_field])]
    elif pa.types.is_list(kind):
        children = [array.values]
    else:
        return array
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    rebuilt = [_array_with_offsets(child) for child in children]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, children=rebuilt)


def sum_is_checked(node: Any) -> bool:
    """Return whether a ``Sum`` of Java's plan raises where it overflows."""
    context = node.evalContext() if _release(pyspark.__version__) >= (4, 1) else node
    return str(context.evalMode()) == "ANSI"


def stay_in_partitions(frame: DataFrame, partitions: int, functions: Any) -> DataFrame:
    """Return ``frame`` behind a shuffle that leaves each row in the partition that it is in; there are ``partitions``.

    ``functions`` is the module of functions of the frame's session.
    """
    if _release(frame.sparkSession.version) >= (4, 1):
        return frame.repartitionById(partitions, functions.spark_partition_id())
    values = functions.array(*map(functions.lit, _values_by_partition(partitions)))
    placed = frame.withColumn(_COLUMN, functions.element_at(values, functions.spark_partition_id() + 1))
    return placed.repartition(partitions, _COLUMN).drop(_COLUMN)


def _values_by_partition(partitions: int) -> list[int]:
    """Return for each partition an integer that Spark's hash partitioning puts there."""
    values: dict[int, int] = {}
    value = 0
    while len(values) < partitions:
        values.setdefault(_murmur3(value) % partitions, value)
        value += 1
    return [values[partition] for partition in range(partitions)]


def _murmur3(value: int) -> int:
    """Return what Spark's ``hash`` returns for an ``int``: MurmurHash3 of 32 bits with the seed 42."""
    mixed = 42 ^ (_rotated(value * 0xCC9E2D51, 15) * 0x1B873593 & 0xFFFFFFFF)
    mixed = (_rotated(mixed, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(number: int, by: int) -> int:
    number &= 0xFFFFFFFF
    return (number << by | number >> (32 - by)) & 0xFFFFFFFF
