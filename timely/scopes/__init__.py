"""Hierarchical scopes: the ``Scope`` protocol, the subgraph that wraps connected scopes, and the nesting of times."""

from timely.scopes.count_sinks import TracedSink
from timely.scopes.external_summary import EGRESS, INGRESS
from timely.scopes.forwarding import ForwardingScope
from timely.scopes.round_trip import RoundTripSummary
from timely.scopes.scope import Counts, Scope, Summaries, is_patient, is_shared, observed_inputs
from timely.scopes.subgraph import Subgraph
from timely.scopes.trusted import TrustedScope
from timely.scopes.validating import ValidatingScope

__all__ = [
    "EGRESS",
    "INGRESS",
    "TrustedScope",
    "TracedSink",
    "ValidatingScope",
    "Counts",
    "ForwardingScope",
    "RoundTripSummary",
    "Scope",
    "Subgraph",
    "Summaries",
    "is_patient",
    "is_shared",
    "observed_inputs",
]
