"""Streams, containers, channels and pacts, capabilities, and the operator builder: all that a user's own operator needs."""

from typing import TYPE_CHECKING, Any

from timely.dataflow.builder import OperatorBuilder, make
from timely.dataflow.capability import Capability, CapabilitySet, InputCapability
from timely.dataflow.containers.container import Container, records_of
from timely.dataflow.containers.data_frames import pandas_frame, polars_frame
from timely.dataflow.containers.keys import Key, route, route_array, route_column
from timely.dataflow.containers.pickling import PlainPickles, pickled
from timely.dataflow.containers.plain_data import unpickled_plain
from timely.dataflow.custom_scope import DataScope, Inlet, Outlet, add_scope
from timely.dataflow.first_rows import Preview, joined, preview
from timely.dataflow.identity import operator_name
from timely.dataflow.info import Activator, Allocator, OperatorInfo
from timely.dataflow.operator import Operator, why_not_run
from timely.dataflow.origin import fold_tracebacks, warn
from timely.dataflow.pact import Distribute, Exchange, Pact, Pipeline, Spill
from timely.dataflow.port_owner import PortOwner
from timely.dataflow.ports import InputPort, OutputPort, Session
from timely.dataflow.scope_builder import ScopeBuilder, Stream, check_scope, scope_of
from timely.dataflow.sync_activator import SyncActivator

if TYPE_CHECKING:
    from timely.dataflow.containers.arrow_values import arrow_batches, check_layout, check_moments, own_array, without_views
    from timely.dataflow.output_schema import OutputSchema, declared_schema, declared_types

__all__ = [
    "Activator",
    "Allocator",
    "SyncActivator",
    "Capability",
    "CapabilitySet",
    "Container",
    "DataScope",
    "Distribute",
    "Exchange",
    "Inlet",
    "InputCapability",
    "InputPort",
    "Key",
    "Operator",
    "OperatorBuilder",
    "OperatorInfo",
    "Outlet",
    "OutputPort",
    "OutputSchema",
    "Pact",
    "Pipeline",
    "PlainPickles",
    "PortOwner",
    "Preview",
    "ScopeBuilder",
    "Session",
    "Spill",
    "Stream",
    "add_scope",
    "arrow_batches",
    "check_layout",
    "check_moments",
    "check_scope",
    "declared_schema",
    "declared_types",
    "fold_tracebacks",
    "joined",
    "make",
    "operator_name",
    "own_array",
    "pandas_frame",
    "pickled",
    "polars_frame",
    "preview",
    "records_of",
    "route",
    "route_array",
    "route_column",
    "scope_of",
    "unpickled_plain",
    "warn",
    "why_not_run",
    "without_views",
]

if not TYPE_CHECKING:  # where type checkers see it, they accept every name

    def __getattr__(name: str) -> Any:
        # Schemas and values of Arrow load PyArrow, which most programs do not need.
        if name in ("OutputSchema", "declared_schema", "declared_types"):
            from timely.dataflow import output_schema

            return getattr(output_schema, name)
        if name in ("arrow_batches", "check_layout", "check_moments", "own_array", "without_views"):
            from timely.dataflow.containers import arrow_values

            return getattr(arrow_values, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
