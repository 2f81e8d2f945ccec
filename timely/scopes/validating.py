"""``ValidatingScope``: validates what a scope that is not our own reports.

One wrong count would make every frontier downstream wrong. Our own operators cannot report one: capabilities gate every change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from typing_extensions import override

from timely.errors import GraphError, ProgressError, brief
from timely.order import PartialOrder
from timely.progress import ChangeBatch
from timely.scopes.scope import (
    Counts,
    Scope,
    Summaries,
    capabilities_error,
    check_internal_summary,
    is_patient,
    is_shared,
    observed_inputs,
)

T = TypeVar("T", bound=PartialOrder)


class ForwardingScope(Scope[T]):
    """A ``Scope`` that stands in for another: what a derived class does not override passes through unchanged."""

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


class ValidatingScope(ForwardingScope[T]):
    """Checks every report of a scope as a whole, before it has an effect (invariants OC2 and OC4).

    ``ProgressError`` for a capability or message that neither a held capability nor a message consumed in the same pull supports,
    and for giving up more capabilities than are held. ``held`` are the capabilities for each output.
    """

    def __init__(self, scope: Scope[T], name: str, path: str) -> None:
        super().__init__(scope)
        self.name = name
        self.path = path
        self.held: list[dict[T, int]] = []
        self.summaries: Summaries[T] = ()

    def ask_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return the scope's summary before it is checked."""
        return self.scope.get_internal_summary()

    def ask(
        self, internal: Sequence[ChangeBatch[T]], consumed: Sequence[ChangeBatch[T]], produced: Sequence[ChangeBatch[T]]
    ) -> bool:
        """Pull the scope; its report is not checked yet."""
        return self.scope.pull_internal_progress(internal, consumed, produced)

    @override
    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        answer = self.ask_internal_summary()
        try:
            summaries, counts = answer
        except (TypeError, ValueError):
            raise GraphError(
                f"scope {self.path!r}: get_internal_summary must return (summaries, counts), and returned {brief(answer)}"
            ) from None
        check_internal_summary(self.path, self.scope, summaries, counts)
        self.summaries = summaries
        try:
            initial = [list(ChangeBatch(elements)) for elements in counts]
        except (TypeError, ValueError) as error:
            raise capabilities_error(self.path, self.scope, counts) from error
        if any(count < 0 for elements in initial for _, count in elements):
            raise capabilities_error(self.path, self.scope, counts)
        self.held = [dict(elements) for elements in initial]
        return summaries, initial

    @override
    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        super().push_external_progress(external)
        for changes in external:
            changes.clear()  # a scope that ignores some has received them all the same

    @override
    def pull_internal_progress(
        self, internal: Sequence[ChangeBatch[T]], consumed: Sequence[ChangeBatch[T]], produced: Sequence[ChangeBatch[T]]
    ) -> bool:
        busy = self.ask(internal, consumed, produced)
        for port, read in enumerate(consumed):
            for time, count in read:
                if count < 0:
                    raise self._error(f"reports that it consumed {count} messages at {brief(time)} on input {port}")
        for output in range(self.outputs):
            for kind, changes in (("holds a capability", internal[output]), ("produced messages", produced[output])):
                for time, count in changes:
                    if count > 0 and not self._supported(output, time, consumed):
                        raise self._error(f"{kind} at {brief(time)} on output {output}, which nothing that it had supports")
            if any(count < 0 for _, count in produced[output]):
                raise self._error(f"reports that it produced a negative number of messages on output {output}")
        for output, changes in enumerate(internal):
            self._hold(output, changes)
        return busy

    def _supported(self, output: int, time: T, consumed: Sequence[ChangeBatch[T]]) -> bool:
        """Return whether a capability held before, or a message consumed now, allows ``time`` at ``output``."""
        if any(held <= time for held in self.held[output]):
            return True
        for row, read in zip(self.summaries, consumed, strict=True):
            for arrived, _ in read:
                for summary in row[output]:
                    result = summary.results_in(arrived)
                    if result is not None and result <= time:
                        return True
        return False

    def _hold(self, output: int, changes: ChangeBatch[T]) -> None:
        held = self.held[output]
        for time, diff in changes:
            held[time] = held.get(time, 0) + diff
            if held[time] < 0:
                raise self._error(f"gave back more capabilities at {brief(time)} on output {output} than it held")
            if not held[time]:
                del held[time]

    def _error(self, complaint: str) -> ProgressError:
        return ProgressError(
            f"scope {self.name!r} ({self.path}) {complaint}: every new capability and message must be at or after a"
            " capability held on that output, or the result of a message consumed in the same pull"
        )
