"""``ScopeContext``: a scope that a ``with`` statement is to open, and what it says to who forgot that."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from timely.errors import GraphError

S = TypeVar("S")


class ScopeContext(AbstractContextManager[S]):
    """What opens a scope when its ``with`` block begins, and finishes it behind that; ``call`` is what it came of.

    >>> import timely
    >>> timely.Worker().dataflow(int).new_input()
    Traceback (most recent call last):
    ...
    timely.errors.GraphError: dataflow() opens a scope: write `with ...dataflow() as scope:`, and scope.new_input in that block
    """

    def __init__(self, manager: AbstractContextManager[S], call: str) -> None:
        self._manager = manager
        self._call = call

    def __enter__(self) -> S:
        return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise GraphError(
            f"{self._call}() opens a scope: write `with ...{self._call}() as scope:`, and scope.{name} in that block"
        )
