"""Progress tracking as pure state machines: times, antichains, change batches, trackers, the exchange of progress.

Nothing here does input or output, starts a thread, or knows of data or workers. A frontier never claims that a time has passed
which may still appear. Import the names from this package, not from its modules.
"""

from timely.order import Product
from timely.progress.activation_queue import ActivationQueue
from timely.progress.antichain import Antichain, MutableAntichain
from timely.progress.change_batch import ChangeBatch, CountSink
from timely.progress.cycles import strictly_advances
from timely.progress.domain import TimeDomain, time_domain
from timely.progress.exchange import (
    PROGRESS_MODES,
    GroupBatch,
    GroupMark,
    ProgressAggregator,
    ProgressBatch,
    ProgressExchange,
    ProgressGroups,
    ProgressMode,
)
from timely.progress.graph import GraphBuilder, SummaryRow, connected
from timely.progress.graph_theory import strongly_connected
from timely.progress.lattices import Lattice, lattice
from timely.progress.location import Location, Source, Target
from timely.progress.loop_time import LoopSummary, LoopTime
from timely.progress.minimal_heap import MinimalHeap
from timely.progress.refinements import Refinement, refinement
from timely.progress.timestamp import PathSummary, ProductSummary, Step, Timestamp, Unchanged, Unit, UnitSummary
from timely.progress.tracker import Blocker, CellState, Tracker

__all__ = [
    "PROGRESS_MODES",
    "CountSink",
    "ActivationQueue",
    "Antichain",
    "Blocker",
    "CellState",
    "ChangeBatch",
    "GraphBuilder",
    "GroupBatch",
    "GroupMark",
    "Location",
    "Lattice",
    "LoopSummary",
    "LoopTime",
    "MinimalHeap",
    "MutableAntichain",
    "PathSummary",
    "Product",
    "ProductSummary",
    "ProgressAggregator",
    "ProgressBatch",
    "ProgressExchange",
    "ProgressGroups",
    "ProgressMode",
    "Refinement",
    "Source",
    "Step",
    "SummaryRow",
    "Target",
    "TimeDomain",
    "Timestamp",
    "Tracker",
    "Unchanged",
    "Unit",
    "UnitSummary",
    "connected",
    "refinement",
    "strictly_advances",
    "strongly_connected",
    "lattice",
    "time_domain",
]
