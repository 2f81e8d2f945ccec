"""Hierarchical scopes: the ``Scope`` protocol, the subgraph that wraps connected scopes, and the nesting of times."""

from timely.scopes.count_sinks import Recorder, TracedSink
from timely.scopes.external_summary import RoundTripSummary
from timely.scopes.scope import (
    EGRESS,
    INGRESS,
    Counts,
    Edge,
    Scope,
    Summaries,
    is_patient,
    is_shared,
    observed_inputs,
    output_port,
)
from timely.scopes.subgraph import Child, Subgraph
from timely.scopes.subgraph_builder import SubgraphBuilder
from timely.scopes.trusted import TrustedScope
from timely.scopes.validating import ForwardingScope, ValidatingScope

__all__ = [
    "EGRESS",
    "INGRESS",
    "Child",
    "Counts",
    "Edge",
    "ForwardingScope",
    "Recorder",
    "RoundTripSummary",
    "Scope",
    "Subgraph",
    "SubgraphBuilder",
    "Summaries",
    "TracedSink",
    "TrustedScope",
    "ValidatingScope",
    "is_patient",
    "is_shared",
    "observed_inputs",
    "output_port",
]
