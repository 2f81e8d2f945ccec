"""Collections that change: results that stay right at a cost that goes with the change, through joins, groups and nested loops.

A collection is a multiset that changes with time. Operators keep their results up to date as records come and go.
"""

from typing import TYPE_CHECKING, Any

from timely.differential import graphs
from timely.differential import method_table as method_table
from timely.differential.batches import from_batches
from timely.differential.collections import Collection, collection, from_columns, from_updates, new_collection
from timely.differential.count_check import check_counts
from timely.differential.inputs import InputSession
from timely.differential.iteration import Variable, iterate
from timely.differential.operators.arrangement import Arrangement
from timely.differential.operators.handles import TraceHandle
from timely.differential.outputs import Output
from timely.differential.updates.rings import Ring
from timely.differential.upserts import UpsertSession, from_upserts
from timely.differential.why_derivations import Drop, Provenance, WhyNot
from timely.differential.why_provenance import Explainer, Followed, why
from timely.errors import CollectionMismatch, CompactedError, DifferenceError, NotCompleteError

if TYPE_CHECKING:
    from timely.differential.tables import Table, UserFunction, function, read_table, source_tables, sql, table

__all__ = [
    "Arrangement",
    "Collection",
    "CollectionMismatch",
    "CompactedError",
    "DifferenceError",
    "Drop",
    "Explainer",
    "Followed",
    "Provenance",
    "InputSession",
    "NotCompleteError",
    "Output",
    "Ring",
    "Table",
    "TraceHandle",
    "UpsertSession",
    "UserFunction",
    "Variable",
    "WhyNot",
    "check_counts",
    "collection",
    "from_batches",
    "from_columns",
    "from_updates",
    "from_upserts",
    "function",
    "graphs",
    "iterate",
    "new_collection",
    "read_table",
    "source_tables",
    "sql",
    "table",
    "why",
]

if not TYPE_CHECKING:  # where type checkers see it, they accept every name

    def __getattr__(name: str) -> Any:
        # Tables load sqlglot and PyArrow, which other programs do not need.
        if name in ("Table", "UserFunction", "function", "read_table", "source_tables", "sql", "table"):
            from timely.differential import tables

            return getattr(tables, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
