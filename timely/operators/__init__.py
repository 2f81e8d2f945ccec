"""The ready-made operators, as functions of streams and scopes; each is a method of ``Stream`` or ``ScopeBuilder`` too.

They use the public operator interface only.
"""

from timely.operators import results
from timely.operators.asynchronous import from_async, map_async
from timely.operators.delays import delay, delay_batch, reclock
from timely.operators.elementwise import filter, flat_map, inspect, inspect_batch, inspect_progress, inspect_time, map, map_batch
from timely.operators.flow_gates import iterator_source
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
from timely.operators.input_handle import InputHandle
from timely.operators.keyed import windows
from timely.operators.keyed.complete_times import accumulate, aggregate, all_reduce, count, reduce_by_key, value_counts
from timely.operators.keyed.grouping import group_by
from timely.operators.keyed.state_machines import distinct, state_machine
from timely.operators.keyed.stream_joins import join
from timely.operators.loop_edges import LoopHandle, connect_loop, enter, feedback, leave
from timely.operators.notificator import Notificator
from timely.operators.probes import ProbeHandle, probe
from timely.operators.program_inputs import UnorderedHandle, input_from, new_input, new_unordered_input, to_stream
from timely.operators.recordings.capture_events import EventSink, EventSource, Messages, Progress, StreamState
from timely.operators.recordings.captures import Capture, EventLink, LinkReader, capture, capture_into, extract
from timely.operators.recordings.recording import ConnectionSink, ConnectionSource, FileSink, FileSource
from timely.operators.recordings.replaying import replay
from timely.operators.results import ok_err
from timely.operators.routing import branch, branch_when, broadcast, concat, concatenate, exchange, partition
from timely.operators.vertices import Vertex, redistribute_by_key, vertex

__all__ = [
    "Capture",
    "ConnectionSink",
    "ConnectionSource",
    "EventLink",
    "EventSink",
    "EventSource",
    "FileSink",
    "FileSource",
    "InputHandle",
    "LinkReader",
    "LoopHandle",
    "Messages",
    "Notificator",
    "ProbeHandle",
    "Progress",
    "StreamState",
    "UnorderedHandle",
    "Vertex",
    "all_reduce",
    "accumulate",
    "aggregate",
    "binary",
    "binary_frontier",
    "binary_notify",
    "branch",
    "branch_when",
    "broadcast",
    "capture",
    "capture_into",
    "concat",
    "concatenate",
    "connect_loop",
    "count",
    "delay",
    "delay_batch",
    "distinct",
    "empty",
    "enter",
    "exchange",
    "extract",
    "feedback",
    "filter",
    "flat_map",
    "from_async",
    "group_by",
    "input_from",
    "inspect",
    "inspect_batch",
    "inspect_progress",
    "inspect_time",
    "iterator_source",
    "join",
    "leave",
    "map",
    "map_async",
    "map_batch",
    "new_input",
    "new_unordered_input",
    "ok_err",
    "partition",
    "probe",
    "redistribute_by_key",
    "reduce_by_key",
    "replay",
    "reclock",
    "results",
    "sink",
    "source",
    "state_machine",
    "to_stream",
    "unary",
    "unary_frontier",
    "unary_notify",
    "value_counts",
    "vertex",
    "windows",
]
