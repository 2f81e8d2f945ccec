"""Spark's process that forks its Python workers, with what these load already there.

A worker that a failed task has ended is replaced, and took 0.5 to 1 s of processor time to load Arrow, pandas and ``timely``.
"""

from __future__ import annotations

if __name__ == "__main__":
    import gc

    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
    import pyspark.sql.pandas.serializers
    import pyspark.sql.pandas.types  # noqa: F401
    from pyspark.daemon import manager

    import timely.differential
    import timely.graphs
    import timely.spark

    for package in (timely, timely.differential, timely.graphs, timely.spark):
        for name in package.__all__:
            getattr(package, name)  # some are loaded when they are asked for
    gc.freeze()  # a collection in a worker would copy their pages
    manager()
