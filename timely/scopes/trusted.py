"""``TrustedScope``: a scope that counts straight into the account of the scope around it.

It is for children of our own whose reports are right by construction. The invariant: one run is one atomic statement, though what
it says is counted bit by bit, for nothing is derived from the counts before the run is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from timely.native import mypyc_attr
from timely.order import PartialOrder
from timely.progress import CountSink

T = TypeVar("T", bound=PartialOrder)


@mypyc_attr(allow_interpreted_subclasses=True)
class Runnable(ABC):
    """What can be run."""

    @abstractmethod
    def run(self) -> bool:
        """Do some work; return whether to be run again in any case."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TrustedScope(Runnable, Generic[T]):
    """A ``Scope`` of our own that counts straight into its parent's account, to save the lists of a pull.

    What it counts is right by construction, so it is not checked, and nothing is derived from it before ``run`` has returned,
    so that one run is one atomic statement all the same. A class says that it keeps this by deriving from it.
    """

    @abstractmethod
    def attach(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        fanout: Sequence[list[int]],
        hold: CountSink[T],
        note: CountSink[T],
    ) -> list[list[T]]:
        """Count capabilities in ``hold`` and messages in ``note``; return the frontier elements of each input, to be kept."""


class TracedRun(Runnable):
    """Runs by way of a function, for whoever looks on."""

    def __init__(self, function: Callable[[], bool]) -> None:
        self._function = function

    def run(self) -> bool:
        """Call the function."""
        return self._function()
