"""``Child`` and ``Edge``: what a ``Subgraph`` keeps of each scope in it, and of each edge between two of them.

They hold, and decide nothing. The invariant: the numbers that a child has been given are those of its own locations in the
tracker of the scope around it, and never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from timely.progress import ChangeBatch, Source, Target
from timely.scopes.scope import Scope, is_patient, is_shared
from timely.scopes.trusted import TrustedScope

if TYPE_CHECKING:
    from timely.scopes.subgraph import Subgraph


class Edge:
    """One edge of a subgraph, as it was drawn: ``local`` where no message on it ever leaves the worker."""

    __slots__ = ("local", "source", "target")

    def __init__(self, source: Source, target: Target, local: bool) -> None:
        self.source = source
        self.target = target
        self.local = local


class Child:
    """What a subgraph keeps of one child: the scope, its locations as dense numbers, and, unless it counts straight into the
    subgraph's account, scratch lists for its progress. ``nested`` is the scope where that is a subgraph itself.
    """

    __slots__ = (
        "consumed",
        "external",
        "fanout",
        "held",
        "index",
        "internal",
        "name",
        "nested",
        "patient",
        "produced",
        "read",
        "scope",
        "sent",
        "shared",
        "sources",
        "targets",
    )

    def __init__(self, index: int, name: str, scope: Scope[Any], nested: Subgraph[Any, Any] | None = None) -> None:
        self.index = index
        self.name = name
        self.scope = scope
        self.nested = nested
        self.patient = nested is not None or is_patient(scope)
        self.shared = is_shared(scope)
        self.sources: Sequence[int] = ()
        self.targets: Sequence[int] = ()
        self.fanout: Sequence[list[int]] = ()
        self.external: Sequence[ChangeBatch[Any]] = ()
        self.internal: Sequence[ChangeBatch[Any]] = ()
        self.consumed: Sequence[ChangeBatch[Any]] = ()
        self.produced: Sequence[ChangeBatch[Any]] = ()
        self.held: list[tuple[ChangeBatch[Any], int]] = []
        self.read: list[tuple[ChangeBatch[Any], int]] = []
        self.sent: list[tuple[ChangeBatch[Any], list[int]]] = []

    def number(self, sources: Sequence[int], targets: Sequence[int], fanout: Sequence[list[int]]) -> None:
        """Take in the dense numbers of its outputs, of its inputs, and of all that each output leads to."""
        self.sources = sources
        self.targets = targets
        self.fanout = fanout
        if isinstance(self.scope, TrustedScope):
            return
        self.external = [ChangeBatch() for _ in targets]
        self.internal = [ChangeBatch() for _ in sources]
        self.consumed = [ChangeBatch() for _ in targets]
        self.produced = [ChangeBatch() for _ in sources]
        self.held = list(zip(self.internal, sources, strict=True))
        self.read = list(zip(self.consumed, targets, strict=True))
        self.sent = list(zip(self.produced, fanout, strict=True))
