"""Streams, containers, channels and pacts, capabilities, and the operator builder: all that a user's own operator needs."""

from timely.dataflow.builder import OperatorBuilder
from timely.dataflow.capability import Capability, InputCapability
from timely.dataflow.channel import Allocator
from timely.dataflow.container import Key, route, route_column
from timely.dataflow.operator import Activator, Operator, OperatorInfo
from timely.dataflow.pact import Exchange, Pact, Pipeline
from timely.dataflow.ports import InputPort, OutputPort, Session
from timely.dataflow.scope import ScopeBuilder
from timely.dataflow.stream import Stream

__all__ = [
    "Activator",
    "Allocator",
    "Capability",
    "Exchange",
    "InputCapability",
    "InputPort",
    "Key",
    "Operator",
    "OperatorBuilder",
    "OperatorInfo",
    "OutputPort",
    "Pact",
    "Pipeline",
    "ScopeBuilder",
    "Session",
    "Stream",
    "route",
    "route_column",
]
