"""How long Spark may start the workers of a run: as long as a plan has their function in it.

A DataFrame is lazy, and others are derived from it, of which Python knows nothing. Java knows: every plan, cached table and
running job refers to the one object that holds the function. A weak reference to that object keeps nothing alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame


def has_plan(frame: DataFrame) -> Callable[[], bool]:
    """Return a function that returns whether Java still has a plan with the function that ``frame`` maps.

    >>> from timely.spark import local_session
    >>> frame = local_session(2).range(3).mapInArrow(lambda batches: batches, "id long")
    >>> has_plan(frame)()
    True
    """
    jvm: Any = frame.sparkSession._jvm
    function = frame._jdf.queryExecution().logical().functionExpr().func()
    reference = jvm.java.lang.ref.WeakReference(function)

    def has() -> bool:
        try:
            return reference.get() is not None
        except Exception:  # the JVM has ended, and its plans with it
            return False

    return has
