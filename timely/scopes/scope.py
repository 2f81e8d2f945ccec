"""The ``Scope`` protocol: how a piece of a dataflow and the scope around it speak to each other.

A scope is anything with inputs and outputs that keeps its own progress: one operator, a nested dataflow, or something
foreign. At set-up the two sides exchange summaries (how time advances from my inputs to my outputs, and how the world leads
from my outputs back to my inputs); at run time the outside pushes what changed elsewhere, and pulls what changed inside.
The three lists of one pull are one atomic statement, and nothing in the system splits it. The protocol follows the 2014
posts that introduced hierarchical scopes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from timely.errors import GraphError
from timely.order import PartialOrder
from timely.progress import Antichain, ChangeBatch, PathSummary

T = TypeVar("T", bound=PartialOrder)

Summaries: TypeAlias = Sequence[Sequence[Antichain[PathSummary[T]]]]
"""``summaries[from_port][to_port]``: the minimal path summaries; an empty antichain means "not connected".

Where there are many ports, most of them not connected, a row can be a ``timely.progress.SummaryRow``."""

Counts: TypeAlias = Sequence[Sequence[tuple[T, int]]]
"""``counts[port]``: times with how often they count there."""


class Scope(Protocol[T]):
    """What an operator, a nested dataflow or a computation of one's own offers to the scope around it.

    A scope speaks for this worker alone: what it reports is added up over the workers by the scope around it. Three optional
    attributes refine that: ``observes`` (the input ports whose frontier it wants to hear of; all of them if absent),
    ``shared`` (``True`` where the scope exchanges its progress with its peers itself, so that each worker's instance
    reports the same; a ``Subgraph`` does), and ``patient`` (``True`` where the scope itself asks to be pulled when there is
    something to do; one that is not is pulled again and again as long as it says that it has unreported work).

    Source: "Hierarchical scopes" posts, 2014; the atomic triple is section 4 of the book's progress chapter.
    """

    @property
    def inputs(self) -> int:
        """How many inputs it has."""
        ...

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        ...

    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return ``(summaries, counts)``: ``summaries[input][output]`` and the initial capabilities per output."""
        ...

    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        """Hear how the world leads from each output back to each input, and the initial counts at each input."""
        ...

    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        """Hear, per input, how the frontier there has changed."""
        ...

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Do some work and fill in what changed: capabilities per output, messages consumed per input, produced per output.

        Returns ``True`` while there is unreported work that must keep the computation alive.
        """
        ...


def observed_inputs(scope: Scope[Any]) -> tuple[int, ...]:
    """Return the input ports whose frontier ``scope`` wants to hear of: all of them, unless it says otherwise."""
    observes: Sequence[int] | None = getattr(scope, "observes", None)
    return tuple(range(scope.inputs)) if observes is None else tuple(observes)


def is_shared(scope: Scope[Any]) -> bool:
    """Return whether ``scope`` exchanges its progress with its peers itself, so that all instances report the same."""
    return bool(getattr(scope, "shared", False))


def is_patient(scope: Scope[Any]) -> bool:
    """Return whether ``scope`` asks to be pulled itself, so that it need not be pulled again for being busy."""
    return bool(getattr(scope, "patient", False))


def check_internal_summary(name: str, scope: Scope[Any], summaries: Summaries[Any], counts: Counts[Any]) -> None:
    """Raise ``GraphError`` unless the internal summary of ``scope`` has the shape that its ports ask for."""
    if not _has(scope.inputs, summaries) or not all(_has(scope.outputs, row) for row in summaries):
        raise GraphError(
            f"scope {name!r}: get_internal_summary must return summaries[input][output] for {scope.inputs} inputs and"
            f" {scope.outputs} outputs, one Antichain of path summaries each (empty: not connected)"
        )
    if not _has(scope.outputs, counts):
        raise capabilities_error(name, scope, counts)


def capabilities_error(name: str, scope: Scope[Any], counts: Any) -> GraphError:
    """Return the error for initial capabilities that are none."""
    return GraphError(
        f"scope {name!r}: get_internal_summary must return initial capabilities for {scope.outputs} outputs, one list of"
        f" (time, count) each, and returned {counts!r}"
    )


def _has(length: int, given: Any) -> bool:
    """Return whether what a scope has given is a sequence of this length; a mapping is none."""
    try:
        return len(given) == length and not isinstance(given, Mapping)
    except TypeError:
        return False
