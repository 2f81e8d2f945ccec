"""``ForwardingScope``: a scope that stands in for another one.

What a derived class does not override passes through unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from typing_extensions import override

from timely.order import PartialOrder
from timely.progress import ChangeBatch
from timely.scopes.scope import Counts, Scope, Summaries, is_patient, is_shared, observed_inputs

T = TypeVar("T", bound=PartialOrder)


class ForwardingScope(Scope[T]):
    """A ``Scope`` that forwards everything to ``scope``, and its optional attributes to the parent.

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
    @override
    def inputs(self) -> int:
        return self.scope.inputs

    @property
    @override
    def outputs(self) -> int:
        return self.scope.outputs

    @property
    def observes(self) -> tuple[int, ...]:
        """The inputs whose frontier is pushed to the scope."""
        return observed_inputs(self.scope)

    @property
    def shared(self) -> bool:
        """Whether the scope exchanges its progress with its peers itself."""
        return is_shared(self.scope)

    @property
    def patient(self) -> bool:
        """Whether the scope activates itself."""
        return is_patient(self.scope)

    @override
    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        return self.scope.get_internal_summary()

    @override
    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        self.scope.set_external_summary(summaries, external)

    @override
    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        self.scope.push_external_progress(external)

    @override
    def pull_internal_progress(
        self, internal: Sequence[ChangeBatch[T]], consumed: Sequence[ChangeBatch[T]], produced: Sequence[ChangeBatch[T]]
    ) -> bool:
        return self.scope.pull_internal_progress(internal, consumed, produced)
