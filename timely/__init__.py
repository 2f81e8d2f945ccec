"""Timely dataflow for Python: nested, iterative, incremental dataflows with exact progress tracking.

A program connects operators with streams and sends records that carry logical times; progress tracking proves which times are
complete where. Loops are scopes whose times have one more coordinate. This package has every name that a normal program needs.
"""

from typing import TYPE_CHECKING, Any

from timely import methods as methods
from timely import operators
from timely.dataflow import (
    Capability,
    CapabilitySet,
    Container,
    DataScope,
    Distribute,
    Exchange,
    Inlet,
    InputCapability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    Outlet,
    OutputPort,
    Pipeline,
    ScopeBuilder,
    Session,
    Spill,
    Stream,
)
from timely.errors import (
    AuthenticationError,
    CapabilityError,
    CaptureError,
    ChangedDataflowError,
    CheckpointError,
    CollectionMismatch,
    CompactedError,
    ConfigurationError,
    ContainerError,
    CycleError,
    DeliveryError,
    DifferenceError,
    FeedError,
    GraphError,
    InvariantViolation,
    LawViolation,
    NotCompleteError,
    OperatorError,
    OutOfMemoryError,
    OutputError,
    PeerLostError,
    ProgressError,
    RecoveryError,
    RoutingError,
    SchemaError,
    SparkError,
    SpillError,
    SqlError,
    StalledError,
    StateError,
    TimelyError,
    TimelyWarning,
    TimestampError,
    UnsendableError,
    ViewError,
    WorkerError,
)
from timely.execution import BackgroundRun, example, execute, start
from timely.operators import (
    Capture,
    ConnectionSink,
    ConnectionSource,
    EventLink,
    FileSink,
    FileSource,
    InputHandle,
    LoopHandle,
    Messages,
    Notificator,
    ProbeHandle,
    Progress,
    Vertex,
    all_reduce,
    reclock,
)
from timely.operators.keyed.windows import windows
from timely.order import Product
from timely.progress import (
    Antichain,
    ChangeBatch,
    GraphBuilder,
    LoopSummary,
    LoopTime,
    MutableAntichain,
    PathSummary,
    ProductSummary,
    Source,
    Step,
    Target,
    Timestamp,
    Tracker,
    Unit,
    engine,
)
from timely.scopes import Scope
from timely.worker import Barrier, Sequencer, Worker

if TYPE_CHECKING:
    from timely.recovery import Recovery

__version__ = "0.1.0"

compiled: bool = not str(engine.__file__).endswith((".py", ".pyc"))
"""Whether the compiled engine runs (``docs/decisions/engine.md``). The results are the same."""

__all__ = [
    "Antichain",
    "AuthenticationError",
    "BackgroundRun",
    "Barrier",
    "Capability",
    "CapabilityError",
    "CapabilitySet",
    "Capture",
    "CaptureError",
    "ChangeBatch",
    "ChangedDataflowError",
    "CheckpointError",
    "CollectionMismatch",
    "CompactedError",
    "ConfigurationError",
    "ConnectionSink",
    "ConnectionSource",
    "Container",
    "ContainerError",
    "CycleError",
    "DataScope",
    "DeliveryError",
    "DifferenceError",
    "Distribute",
    "EventLink",
    "Exchange",
    "FeedError",
    "FileSink",
    "FileSource",
    "GraphBuilder",
    "GraphError",
    "Inlet",
    "InputCapability",
    "InputHandle",
    "InputPort",
    "InvariantViolation",
    "LawViolation",
    "LoopHandle",
    "LoopSummary",
    "LoopTime",
    "Messages",
    "MutableAntichain",
    "NotCompleteError",
    "Notificator",
    "OperatorBuilder",
    "OperatorError",
    "OutOfMemoryError",
    "OperatorInfo",
    "Outlet",
    "OutputError",
    "OutputPort",
    "PathSummary",
    "PeerLostError",
    "Pipeline",
    "ProbeHandle",
    "Product",
    "ProductSummary",
    "Progress",
    "ProgressError",
    "Recovery",
    "RecoveryError",
    "RoutingError",
    "SchemaError",
    "Scope",
    "ScopeBuilder",
    "Sequencer",
    "Session",
    "Source",
    "SparkError",
    "Spill",
    "SpillError",
    "SqlError",
    "StalledError",
    "StateError",
    "Step",
    "Stream",
    "Target",
    "TimelyError",
    "TimelyWarning",
    "Timestamp",
    "TimestampError",
    "Tracker",
    "UnsendableError",
    "ViewError",
    "Unit",
    "Vertex",
    "Worker",
    "WorkerError",
    "all_reduce",
    "compiled",
    "example",
    "execute",
    "operators",
    "reclock",
    "start",
    "windows",
]

if not TYPE_CHECKING:  # where type checkers see it, they accept every name

    def __getattr__(name: str) -> Any:
        # Recovery loads logging and hashlib, which most programs do not need.
        if name == "Recovery":
            from timely.recovery import Recovery

            return Recovery
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
