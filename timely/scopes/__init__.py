"""Hierarchical scopes: the ``Scope`` protocol, the subgraph that wraps connected scopes, and the nesting of times."""

from timely.scopes.accounts import Calling
from timely.scopes.attachable import Attachable
from timely.scopes.checked import Checked
from timely.scopes.delegating import Delegating
from timely.scopes.excursion import Excursion
from timely.scopes.scope import Counts, Scope, Summaries, is_patient, is_shared, observed_inputs
from timely.scopes.subgraph import Subgraph
from timely.scopes.surroundings import EGRESS, INGRESS

__all__ = [
    "EGRESS",
    "INGRESS",
    "Attachable",
    "Calling",
    "Checked",
    "Counts",
    "Delegating",
    "Excursion",
    "Scope",
    "Subgraph",
    "Summaries",
    "is_patient",
    "is_shared",
    "observed_inputs",
]
