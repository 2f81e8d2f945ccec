"""Actions raise the typed error of a worker, in place of Spark's exception with a Java stack.

PySpark has one function that makes Python's exception of Java's, for all DataFrames, also those made of a run's outputs. It asks
this module first. The invariant: an exception that quotes no error of a worker of this program stays what Spark made of it.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any, Final

from pyspark.errors.exceptions import captured

from timely.errors import TimelyError
from timely.spark.gathered_rendezvous import failure_of
from timely.spark.stage_messages import revive

_RECENT: Final[deque[tuple[str, dict[str, Any]]]] = deque(maxlen=1024)
"""The last errors of workers: the text by which Spark's exception quotes one, and its description."""


def note_failure(error: TimelyError, description: dict[str, Any]) -> None:
    """Remember the error of a worker: the exception of an action that quotes it becomes that error."""
    _RECENT.append((f"{type(error).__name__}: {error}", description))


@cache
def raise_typed_errors() -> None:
    """Have the actions of this process raise the typed errors of workers. Another call changes nothing."""
    spark_converted = captured.convert_exception
    captured.convert_exception = lambda e: _typed_error(str(e.toString())) or spark_converted(e)


def _typed_error(text: str) -> Any:
    """Return the error that an exception of Java quotes. Others may come meanwhile, from the thread of the rendezvous."""
    quoted = next((description for quote, description in reversed(_RECENT.copy()) if quote in text), None)
    return failure_of(RuntimeError(text)) if quoted is None else revive(quoted)
