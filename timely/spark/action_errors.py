"""Actions raise the typed error of a worker, in place of Spark's exception with a Java stack.

PySpark has one function that makes Python's exception of Java's, for all DataFrames, also those made of a run's outputs. It asks
this module first. The invariant: an exception that quotes no error of a worker of this program stays what Spark made of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors.exceptions import captured

from timely.errors import TimelyError
from timely.spark.gathered_rendezvous import failure_of
from timely.spark.stage_messages import revive

_RECENT: Final[deque[tuple[str, dict[str, Any]]]] = deque(maxlen=64)
"""The last errors of workers: the text by which Spark's exception quotes one, and its description."""


def note_failure(error: TimelyError, description: dict[str, Any]) -> None:
    """Remember the error of a worker: the exception of an action that quotes it becomes that error."""
    _RECENT.append((f"{type(error).__name__}: {error}", description))


def raise_typed_errors() -> None:
    """Have the actions of this process raise the typed errors of workers. Another call changes nothing."""
    captured.convert_exception = _converted


_spark_converted: Final[Callable[[Any], Any]] = captured.convert_exception


def _converted(e: Any) -> Any:
    """Return Python's exception for an error of Java."""
    text = str(e.toString())
    quoted = next((description for quote, description in reversed(_RECENT) if quote in text), None)
    return (failure_of(RuntimeError(text)) if quoted is None else revive(quoted)) or _spark_converted(e)
