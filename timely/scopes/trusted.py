"""``TrustedScope``: a scope of our own that counts straight into the sinks of the scope around it.

The invariant: one run is one atomic statement, because nobody derives a frontier before the run is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from typing_extensions import override

from timely.native import mypyc_attr
from timely.order import PartialOrder
from timely.progress import CountSink
from timely.scopes.scope import Counts, Summaries

T = TypeVar("T", bound=PartialOrder)


@mypyc_attr(allow_interpreted_subclasses=True)
class Runnable(ABC):
    """What a subgraph runs."""

    @abstractmethod
    def run(self) -> bool:
        """Do some work; return whether to run again in any case."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TrustedScope(Runnable, Generic[T]):
    """A scope whose counts are right by construction, and therefore not checked.

    Instead of being pulled it is attached once. It observes what ``observed_inputs`` says of it.
    """

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many inputs it has."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many outputs it has."""

    @abstractmethod
    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return what ``Scope.get_internal_summary`` does."""

    @abstractmethod
    def attach(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        fanout: Sequence[list[int]],
        capabilities: CountSink[T],
        messages: CountSink[T],
    ) -> list[list[T]]:
        """Count in these sinks from now on; return the frontier of each input, a list that the caller keeps up to date.

        ``sources`` and ``targets`` number its ports, ``fanout`` the locations that each output leads to.
        """


class TracedRun(Runnable):
    """Runs through a function, for a tracer."""

    def __init__(self, function: Callable[[], bool]) -> None:
        self._function = function

    @override
    def run(self) -> bool:
        return self._function()
