"""Test tools for timestamps, scopes and operators of your own: laws, strategies, oracles, a simulator, a model checker.

A violation names the rule that is broken by its id. Needs Hypothesis.
"""

from timely.errors import ConfigurationError

try:
    import hypothesis as _hypothesis  # noqa: F401
except ModuleNotFoundError as error:
    raise ConfigurationError("timely.testing needs Hypothesis: pip install '.[test]' in a checkout of timely") from error

from timely.testing.exchange_rules import Deliver, Do, ExchangeRules, Flush
from timely.testing.graph import GraphSpec, NodeSpec
from timely.testing.invariants import INVARIANTS, Invariant
from timely.testing.lattices import check_lattice
from timely.testing.laws import check_refinement, check_summary, check_timestamp
from timely.testing.model_checker import Configuration, Explored, StateChecks, explore
from timely.testing.operator_state import MemoryStateRegistry, settle, undeclared
from timely.testing.oracles import Oracle, check_tracker, could_result_in, minimal, path_summaries
from timely.testing.schedule import Delivery, Resume, schedules
from timely.testing.simulator import Simulation, shrink, simulate
from timely.testing.strategies import changes, graphs, histories, ladders, scenarios, smallest
from timely.testing.time_strategies import TimeKit, summaries, time_kit, times
from timely.testing.transport import Network

__all__ = [
    "Configuration",
    "Deliver",
    "Delivery",
    "Do",
    "ExchangeRules",
    "Explored",
    "Flush",
    "GraphSpec",
    "INVARIANTS",
    "Invariant",
    "MemoryStateRegistry",
    "Network",
    "NodeSpec",
    "Oracle",
    "Resume",
    "Simulation",
    "StateChecks",
    "TimeKit",
    "changes",
    "check_lattice",
    "check_refinement",
    "check_summary",
    "check_timestamp",
    "check_tracker",
    "could_result_in",
    "explore",
    "graphs",
    "histories",
    "ladders",
    "minimal",
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
