"""What this library tests itself with, for those who build on it: strategies, oracles, simulations, a model checker.

Everything here checks something that must hold of progress tracking, on our engine or on a timestamp, scope or operator
of one's own. The invariant: whatever finds a fault says which rule was broken, by its id, and prints as a short program
that finds it again. A caller imports the names from here, not from the modules behind them; Hypothesis has to be installed.
"""

from timely.errors import ConfigurationError

try:
    import hypothesis as _hypothesis  # noqa: F401  # what most of the modules below are built on
except ModuleNotFoundError as error:
    raise ConfigurationError("timely.testing needs Hypothesis: pip install '.[test]' in a checkout of timely") from error

from timely.testing.code import Described, as_code, as_program
from timely.testing.dataflow import Dataflow, Sending
from timely.testing.exchange import ExchangeRules, ExchangeSimulation
from timely.testing.exchange_state import Deliver, Do, ExchangeState, Flush
from timely.testing.flat_graph import FlatGraph
from timely.testing.graph import GraphSpec, NodeSpec
from timely.testing.invariants import INVARIANTS, Invariant
from timely.testing.keeping import MemoryStateRegistry, settle, undeclared
from timely.testing.kits import TimeKit, antichains, change_batches, summaries, time_kit, times
from timely.testing.laws import check_refinement, check_summary, check_timestamp
from timely.testing.model import Configuration, Explored, explore
from timely.testing.naiad import NaiadScheduler
from timely.testing.nested import build_nesting
from timely.testing.nesting import Link, Nesting, OpSpec, ScopeSpec, Shift
from timely.testing.network import Network
from timely.testing.oracles import Oracle, check_tracker, could_result_in, frontier_oracle, minimal, path_summaries
from timely.testing.parts import (
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
from timely.testing.random_dataflows import dataflows, nestings
from timely.testing.schedule import Delivery, Turn, schedules
from timely.testing.simulator import Simulation, shrink, simulate
from timely.testing.strategies import changes, graphs, histories, ladders, scenarios, smallest

__all__ = [
    "Advance",
    "Concat",
    "Configuration",
    "Cycle",
    "Dataflow",
    "Deliver",
    "Delivery",
    "Described",
    "Distinct",
    "Do",
    "ExchangeRules",
    "ExchangeSimulation",
    "ExchangeState",
    "Explored",
    "Filter",
    "FlatGraph",
    "Flush",
    "GraphSpec",
    "INVARIANTS",
    "Input",
    "Invariant",
    "Link",
    "Loop",
    "Map",
    "MemoryStateRegistry",
    "NaiadScheduler",
    "Nesting",
    "Network",
    "NodeSpec",
    "OpSpec",
    "Oracle",
    "Repeat",
    "ScopeSpec",
    "Scoped",
    "Sending",
    "Shift",
    "Shuffle",
    "Simulation",
    "TimeKit",
    "Total",
    "Turn",
    "antichains",
    "as_code",
    "as_program",
    "build_nesting",
    "change_batches",
    "changes",
    "check_refinement",
    "check_summary",
    "check_timestamp",
    "check_tracker",
    "could_result_in",
    "dataflows",
    "explore",
    "frontier_oracle",
    "graphs",
    "histories",
    "ladders",
    "minimal",
    "nestings",
    "path_summaries",
    "scenarios",
    "schedules",
    "settle",
    "shrink",
    "simulate",
    "smallest",
    "summaries",
    "time_kit",
    "times",
    "undeclared",
]
