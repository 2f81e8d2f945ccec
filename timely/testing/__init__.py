"""Test tools for timestamps, scopes and operators of your own: laws, strategies, oracles, a simulator.

A violation names the rule that is broken by its id. Needs Hypothesis.
"""

from timely.errors import ConfigurationError

try:
    import hypothesis as _hypothesis  # noqa: F401
except ModuleNotFoundError as error:
    raise ConfigurationError("timely.testing needs Hypothesis: pip install hypothesis") from error

from timely.testing.connectors import MemoryBroker, MemorySink, MemorySource, check_sink, check_source
from timely.testing.invariants import INVARIANTS, Invariant
from timely.testing.laws import check_lattice, check_refinement, check_summary, check_timestamp
from timely.testing.migration import check_function, check_migration
from timely.testing.oracles import Change, GraphSpec, NodeSpec, Oracle, Pointstamp, check_tracker, minimal
from timely.testing.random_dataflows import Dataflow, dataflows
from timely.testing.simulated_network import Network
from timely.testing.simulator import Delivery, Resume, Simulation, schedules, simulate
from timely.testing.strategies import TimeKit, changes, graphs, ladders, scenarios, smallest, summaries, time_kit, times

__all__ = [
    "Change",
    "Dataflow",
    "Delivery",
    "GraphSpec",
    "INVARIANTS",
    "Invariant",
    "MemoryBroker",
    "MemorySink",
    "MemorySource",
    "Network",
    "NodeSpec",
    "Oracle",
    "Pointstamp",
    "Resume",
    "Simulation",
    "TimeKit",
    "changes",
    "check_function",
    "check_lattice",
    "check_migration",
    "check_refinement",
    "check_sink",
    "check_source",
    "check_summary",
    "check_timestamp",
    "check_tracker",
    "dataflows",
    "graphs",
    "ladders",
    "minimal",
    "scenarios",
    "schedules",
    "simulate",
    "smallest",
    "summaries",
    "time_kit",
    "times",
]
