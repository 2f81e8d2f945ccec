"""``ForwardingScope``: a scope that stands in for another one, to be derived from by what looks at, or checks, what it says.

The invariant: what a class derived from it does not override reaches the other scope, or its parent, as if nothing stood
between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from timely.order import PartialOrder
from timely.progress import ChangeBatch
from timely.scopes.scope import Counts, Scope, Summaries, is_patient, is_shared, observed_inputs

T = TypeVar("T", bound=PartialOrder)


class ForwardingScope(Generic[T]):
    """A ``Scope`` that passes everything on to ``scope``, and what that answers back.

    >>> class Idle:
    ...     inputs, outputs, observes = 2, 0, [1]
    ...     def pull_internal_progress(self, internal, consumed, produced):
    ...         return True
    >>> stand_in = ForwardingScope(Idle())
    >>> stand_in.inputs, stand_in.observes, stand_in.shared, stand_in.pull_internal_progress([], [], [])
    (2, (1,), False, True)
    """

    def __init__(self, scope: Scope[T]) -> None:
        self.scope = scope

    @property
    def inputs(self) -> int:
        """How many inputs the scope has."""
        return self.scope.inputs

    @property
    def outputs(self) -> int:
        """How many outputs the scope has."""
        return self.scope.outputs

    @property
    def observes(self) -> tuple[int, ...]:
        """The inputs whose frontier the scope wants to hear of."""
        return observed_inputs(self.scope)

    @property
    def shared(self) -> bool:
        """Whether the scope exchanges its progress with its peers itself."""
        return is_shared(self.scope)

    @property
    def patient(self) -> bool:
        """Whether the scope asks to be pulled itself."""
        return is_patient(self.scope)

    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return what the scope says."""
        return self.scope.get_internal_summary()

    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        """Pass on how the world leads back."""
        self.scope.set_external_summary(summaries, external)

    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        """Pass on how the frontiers moved."""
        self.scope.push_external_progress(external)

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Pull the scope, and pass on what it says."""
        return self.scope.pull_internal_progress(internal, consumed, produced)
