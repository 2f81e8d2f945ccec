"""The ``Scope`` protocol, by which a part of a dataflow and the scope around it exchange progress.

At set-up both sides exchange summaries; at run time the parent pushes what changed elsewhere and pulls what changed inside. The
three lists of one pull are one atomic statement, and nothing splits it. Source: the 2014 posts on hierarchical scopes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs

from timely.errors import GraphError
from timely.order import PartialOrder
from timely.progress import Antichain, ChangeBatch, PathSummary, Source, Target

T = TypeVar("T", bound=PartialOrder)

Summaries: TypeAlias = Sequence[Sequence[Antichain[PathSummary[T]]]]
"""``summaries[from_port][to_port]``: the minimal path summaries; an empty antichain means "not connected".

Where there are many ports, most of them not connected, a row can be a ``timely.progress.SummaryRow``."""

Counts: TypeAlias = Sequence[Sequence[tuple[T, int]]]
"""``counts[port]``: times with how often they count there."""


class HasPorts(Protocol):
    """Whatever has numbered inputs and outputs."""

    @property
    def inputs(self) -> int:
        """How many inputs it has."""

    @property
    def outputs(self) -> int:
        """How many outputs it has."""


class Scope(HasPorts, Protocol[T]):
    """What an operator, a nested dataflow or a custom computation offers to the scope around it.

    A scope reports for its own worker; the scope around it adds up the reports of all workers. Three optional attributes:

    - ``observes``: the inputs whose frontier is pushed to it; all of them if absent.
    - ``shared``: ``True`` if the scope exchanges its progress with its peers itself, so that every instance reports the same.
    - ``patient``: ``True`` if the scope activates itself. Any other is pulled again as long as it reports unfinished work.
    """

    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return ``(summaries, counts)``: ``summaries[input][output]`` and the initial capabilities per output."""
        ...

    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        """Receive how the world leads from each output back to each input, and the initial counts at each input."""
        ...

    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        """Receive, per input, how the frontier there has changed."""
        ...

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Do some work and report it: capabilities per output, records consumed per input, records produced per output.

        Returns ``True`` while unfinished work must keep the computation alive.
        """
        ...


def observed_inputs(scope: HasPorts) -> tuple[int, ...]:
    """Return the inputs whose frontier ``scope`` observes."""
    observes: Sequence[int] | None = getattr(scope, "observes", None)
    return tuple(range(scope.inputs)) if observes is None else tuple(observes)


def is_shared(scope: HasPorts) -> bool:
    """Return whether ``scope`` exchanges its progress with its peers itself."""
    return bool(getattr(scope, "shared", False))


def is_patient(scope: HasPorts) -> bool:
    """Return whether ``scope`` activates itself."""
    return bool(getattr(scope, "patient", False))


def check_internal_summary(name: str, scope: HasPorts, summaries: Summaries[Any], counts: Counts[Any]) -> None:
    """Raise ``GraphError`` unless the internal summary has the shape of the scope's ports."""
    if not _has(scope.inputs, summaries) or not all(_has(scope.outputs, row) for row in summaries):
        raise GraphError(
            f"scope {name!r}: get_internal_summary must return summaries[input][output] for {scope.inputs} inputs and"
            f" {scope.outputs} outputs, one Antichain of path summaries each (empty: not connected)"
        )
    if not _has(scope.outputs, counts):
        raise capabilities_error(name, scope, counts)


def capabilities_error(name: str, scope: HasPorts, counts: Any) -> GraphError:
    """Return the error for initial capabilities of the wrong shape."""
    return GraphError(
        f"scope {name!r}: get_internal_summary must return initial capabilities for {scope.outputs} outputs, one list of"
        f" (time, count) each, and returned {counts!r}"
    )


def _has(length: int, value: Any) -> bool:
    try:
        return len(value) == length and not isinstance(value, Mapping)
    except TypeError:
        return False


INGRESS: Final = -1
"""The node whose outputs are the scope's inputs, as seen from inside."""

EGRESS: Final = -2
"""The node whose inputs are the scope's outputs, as seen from inside."""

FIRST_INSIDE: Final = 0
"""Locations inside are numbered from here on, as in the tracker. An output or an input of the scope has a number below: counts
that cross the boundary carry it, between workers too."""


def output_number(port: int) -> int:
    return ~port


def output_port(number: int) -> int:
    """Return the output of the scope that has this number; from ``outputs`` on it is input ``output_port(number) - outputs``."""
    return ~number


def input_number(outputs: int, port: int) -> int:
    """Return the number of an input of a scope with so many outputs."""
    return ~(outputs + port)


@attrs.frozen
class Edge:
    """One edge of a scope's graph; ``local`` if its messages never leave the worker."""

    source: Source
    target: Target
    local: bool
