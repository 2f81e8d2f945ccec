"""One HyperLogLog sketch of reachable vertices per hop; each hop is a join."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

from timely.errors import ConfigurationError, SchemaError


def neighborhood_sketches(edges: DataFrame, hops: int, size: int) -> DataFrame:
    """Return ``(id, hop_0, ..., hop_n)`` for the ids at which an edge starts.

    ``hop_k`` is a sketch of the ends of all walks of ``k`` edges, empty where there is none. It has ``2**size`` registers.
    ``SchemaError`` for ids that Spark has no sketches of.
    """
    if not isinstance(size, int) or not 4 <= size <= 21:
        raise ConfigurationError(f"hyper_anf: lg_nom_entries must be a whole number from 4 to 21, not {size!r}")
    kind = edges.schema["src"].dataType
    if not isinstance(kind, ByteType | ShortType | IntegerType | LongType | StringType):
        raise SchemaError(f"hyper_anf: the ids are {kind.simpleString()}, which Spark has no sketches of: cast them to string")
    value = "int" if isinstance(kind, ByteType | ShortType) else kind.simpleString()
    own, first = (F.hll_sketch_agg(F.col(end).cast(value), size) for end in ("src", "dst"))
    sketches = edges.groupBy(F.col("src").alias("id")).agg(own.alias("hop_0"), first.alias("hop_1"))
    for hop in range(2, hops + 1):
        before = sketches.select(F.col("id").alias("dst"), F.col(f"hop_{hop - 1}").alias("sketch"))
        reached = edges.join(before, "dst", "left").groupBy(F.col("src").alias("id"))
        sketches = sketches.join(reached.agg(F.hll_union_agg("sketch").alias(f"hop_{hop}")), "id")
    return sketches
