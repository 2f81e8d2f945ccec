"""The ready-made operators, as functions of streams and scopes; each is a method of ``Stream`` or ``ScopeBuilder`` too.

All of them are written on the public operator interface only: what they can do, anyone's operator can do.
"""

from timely.operators.capture import Capture, capture
from timely.operators.elementwise import filter, flat_map, inspect, inspect_batch, inspect_time, map, map_batch
from timely.operators.feedback import LoopHandle, connect_loop, feedback
from timely.operators.generic import (
    binary,
    binary_frontier,
    binary_notify,
    empty,
    sink,
    source,
    unary,
    unary_frontier,
    unary_notify,
)
from timely.operators.input import InputHandle, new_input, to_stream
from timely.operators.notificator import Notificator
from timely.operators.probe import ProbeHandle, probe
from timely.operators.routing import branch, branch_when, concatenate, exchange, partition

__all__ = [
    "Capture",
    "InputHandle",
    "LoopHandle",
    "Notificator",
    "ProbeHandle",
    "binary",
    "binary_frontier",
    "binary_notify",
    "branch",
    "branch_when",
    "capture",
    "concatenate",
    "connect_loop",
    "empty",
    "exchange",
    "feedback",
    "filter",
    "flat_map",
    "inspect",
    "inspect_batch",
    "inspect_time",
    "map",
    "map_batch",
    "new_input",
    "partition",
    "probe",
    "sink",
    "source",
    "to_stream",
    "unary",
    "unary_frontier",
    "unary_notify",
]
