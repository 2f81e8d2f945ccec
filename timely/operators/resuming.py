"""Where an input of a run that resumes from a checkpoint begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, cast

import attrs

from timely.dataflow import OperatorInfo, ScopeBuilder
from timely.errors import TimestampError, brief
from timely.operators.type_variables import T
from timely.progress import Refinement


@attrs.frozen(eq=False)
class ResumeTime(Generic[T]):
    """The time at which a run resumes (``timely.recovery``), translated to the times of a scope."""

    _begins: Any
    _nested: Sequence[Refinement[Any, Any]]

    def reached(self, time: T) -> bool:
        outer: Any = time
        for scope in self._nested:
            outer = scope.to_outer(outer)
        return bool(self._begins <= outer)

    @property
    def first(self) -> T:
        """The first time of the scope that is not before the run resumes."""
        inner = self._begins
        for scope in reversed(self._nested):
            inner = scope.to_inner(inner)
        return cast(T, inner)

    def refusal(self, info: OperatorInfo, time: T, remedy: str) -> TimestampError:
        """Return the error for sending at an earlier ``time``; ``remedy`` is what to call first."""
        return TimestampError(
            f"input {info.name!r} ({info.path}) is at {brief(time)}, and the run goes on from a checkpoint at"
            f" {brief(self._begins)}, which has all that came before: {remedy}({brief(self.first)}) first, and send what comes"
            " then"
        )


def resume_time(scope: ScopeBuilder[T], info: OperatorInfo) -> ResumeTime[T] | None:
    """Return the time at which the dataflow of an input resumes from a checkpoint, or ``None``."""
    begins, nested, around = info.begins, [], scope
    if begins is None:
        return None
    while around.parent is not None:
        nested.append(around.subgraph.refinement)
        around = around.parent
    try:
        around.subgraph.domain.check(begins)
    except TimestampError:
        return None  # a time of another dataflow
    return ResumeTime(begins, nested)
