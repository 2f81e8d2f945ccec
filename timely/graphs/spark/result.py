"""What a graph function takes and returns: the options of a run, and a DataFrame that knows of the runs behind it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from timely.dataflow import ScopeBuilder, Stream
from timely.errors import ConfigurationError
from timely.memory import MemoryBudget
from timely.progress import ProgressMode
from timely.spark import Metrics, Result, RunProgress, run
from timely.spark.packing import TAG

if TYPE_CHECKING:
    from timely.errors import TimelyError
    from timely.spark.reporting import ReportPage


class RunOptions(TypedDict, total=False):
    """The options of ``timely.spark.run`` that graph functions pass on. ``checkpoint_every`` is a time: a graph is one epoch."""

    workers: int | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: timedelta
    patience: float
    progress: ProgressMode
    live: ReportPage | None
    memory: int | str | MemoryBudget | None


class GraphResult(DataFrame):
    """The lazy DataFrame of a graph function, which says of the runs behind it what ``timely.spark.Result`` does.

    Each action on it, or on a DataFrame that is made of it, runs the dataflow; ``persist()`` it to use it twice. What Spark makes
    of it is a plain DataFrame.

    >>> from timely.graphs.spark import connected_components
    >>> from timely.spark import local_session
    >>> found = connected_components(local_session(2).createDataFrame([(1, 2)], "src long, dst long"))
    >>> found.orderBy("node").collect(), found.metrics.rows_out, found.resumed, found.failure
    ([Row(node=1, component=1), Row(node=2, component=1)], {'found': 2}, [], None)
    """

    _result: Result

    @property
    def metrics(self) -> Metrics:
        """What each worker did in the last run that succeeded; empty before that."""
        return self._result.metrics

    @property
    def failure(self) -> TimelyError | None:
        """The typed error of the worker that failed last; ``None`` if none failed."""
        return self._result.failure

    @property
    def progress(self) -> RunProgress | None:
        """How far the current or last run is; ``None`` before the first report."""
        return self._result.progress

    @property
    def resumed(self) -> list[int]:
        """With ``checkpoint``: a 1 for each attempt that resumed from a checkpoint, since all rows were in then."""
        return self._result.resumed


def graph_run(
    name: str,
    apply: Callable[..., Stream[Any, Any]],
    inputs: Mapping[str, DataFrame],
    schema: StructType,
    version: str,
    options: RunOptions,
) -> GraphResult:
    """Return what ``apply`` makes of the inputs; ``name`` is in Spark's plans. Warns of inputs that change with each action."""

    def build(scope: ScopeBuilder[Any], **streams: Stream[Any, Any]) -> dict[str, Stream[Any, Any]]:
        return {"found": apply(**streams)}

    build.__name__ = name
    for table, frame in inputs.items():
        if not _is_repeatable(frame):
            warnings.warn(
                f"the {table} of {name} are computed by rand(), monotonically_increasing_id() or another expression whose values"
                " change: each action, and each attempt after a failure, may get another graph. Save such a table and read it,"
                " or cache it",
                stacklevel=4,
            )
    result = run(build, inputs, {"found": schema}, partitioning="hash", version=version, **options)
    return derived_result(result["found"], result)


def _is_repeatable(frame: DataFrame) -> bool:
    """Return whether Spark computes the same rows each time, what is cached left out; true where it does not say."""
    try:
        plan: Any = frame._jdf.queryExecution().withCachedData()
        return bool(plan.deterministic()) or TAG in plan.toString()  # what reads a report is made not to move
    except Exception:  # a frame of Spark Connect, or Spark's internals have changed
        return True


def derived_result(frame: DataFrame, result: Result) -> GraphResult:
    """Return a DataFrame that is made of a run's output, as a ``GraphResult`` of that run."""
    kind = type("GraphResult", (GraphResult, type(frame)), {"__module__": __name__, "__doc__": GraphResult.__doc__})
    derived: Any = object.__new__(kind)
    vars(derived).update(vars(frame), _result=result)
    return cast("GraphResult", derived)


def check_algorithm(method: str, algorithm: str, known: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` for an algorithm that a method does not have."""
    if algorithm not in known:
        raise ConfigurationError(f"{method}: algorithm must be one of {', '.join(map(repr, known))}, not {algorithm!r}")


def check_positive(method: str, name: str, value: object) -> None:
    """Raise ``ConfigurationError`` unless a parameter is a whole number above 0."""
    if not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{method}: {name} must be a whole number above 0, not {value!r}")
