"""Random dataflows over a type of times, each with the result that it must have: made by ``timely.testing.dataflows``.

``Dataflow.reference()`` is that result, ``Dataflow.run()`` the result of a real run, and ``Dataflow.program`` runs elsewhere.
"""

from timely.testing.random_dataflows.dataflow_spec import Begun, Dataflow, Sending
from timely.testing.random_dataflows.dataflow_strategy import dataflows
from timely.testing.random_dataflows.described import Described
from timely.testing.random_dataflows.operator_specs import (
    Advance,
    Concat,
    Cycle,
    Distinct,
    Filter,
    Input,
    Loop,
    Map,
    Repeat,
    Scoped,
    Shuffle,
    Total,
)

__all__ = [
    "Advance",
    "Begun",
    "Concat",
    "Cycle",
    "Dataflow",
    "Described",
    "Distinct",
    "Filter",
    "Input",
    "Loop",
    "Map",
    "Repeat",
    "Scoped",
    "Sending",
    "Shuffle",
    "Total",
    "dataflows",
]
