"""SVD++ on the edges of a graph, each the rating that its source gave its destination."""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, LongType, NumericType, StructField, StructType

from timely.errors import SchemaError
from timely.graphs.graphframes.graph_tables import DEFAULT_LEVEL, WEIGHT, GraphTables, first_row
from timely.graphs.graphframes.pregel.svd_plus_plus import Factorization, svd_plus_plus
from timely.graphs.spark.graph_columns import column_type
from timely.graphs.spark.result import GraphResult, RunOptions

_FACTORS: Final = ArrayType(DoubleType())

_MODEL: Final = StructType(
    [
        StructField("explicit", _FACTORS),
        StructField("implicit", _FACTORS),
        *(StructField(name, DoubleType()) for name in ("bias", "norm", "error")),
        StructField("ratings", LongType()),
    ]
)


def factorized(tables: GraphTables, parameters: Factorization, options: RunOptions) -> tuple[GraphResult, float]:
    """Return the vertices with the columns of the model, and its mean squared error."""
    kind = column_type(tables.edges, WEIGHT, "edges")
    if not isinstance(kind, NumericType):
        raise SchemaError(f"svdPlusPlus: column 'weight' is {kind.simpleString()}, and a rating must be a number: cast it")
    apply = partial(svd_plus_plus, parameters=parameters)
    edges = tables.inner_edges(F.col(WEIGHT).cast("double").alias("weight"))
    result = tables.run("svdPlusPlus", apply, _MODEL, options, edges=edges)
    table = result.localCheckpoint()  # not persist(): the table goes when the result does
    columns = [F.col(name).alias(f"column{at}") for at, name in enumerate(("explicit", "implicit", "bias"), 1)]
    model = table.select("node", *columns, F.coalesce("error", "norm").alias("column4"))
    error, ratings = first_row(table.select(F.coalesce(F.sum("error"), F.lit(0.0)), F.sum("ratings")))
    return tables.beside(model, DEFAULT_LEVEL, result._result), error / ratings if ratings else float("nan")
