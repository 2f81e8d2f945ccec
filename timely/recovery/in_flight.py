"""Messages in flight as part of a checkpoint, so that it can be taken in the middle of a loop.

Workers that are paused between two steps, with everything that they sent each other arrived, have all messages in the queues of
their operators. These, and what the operators registered, are the whole of the run: counts follow from both. The invariant: a
message is in one queue, or its effect is in the state of the operator that read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from timely.dataflow import Operator, ScopeBuilder
from timely.dataflow.containers.pickling import dumps
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.identity import without_functions
from timely.dataflow.info import Piece
from timely.errors import ChangedDataflowError, StateError
from timely.recovery.manifest import Layer
from timely.recovery.state_file import Key
from timely.scopes import Subgraph

MESSAGES: Final = "(messages in flight)"
"""Where a checkpoint has the messages of a dataflow, in place of an operator's path."""

Waiting: TypeAlias = tuple[str, int, Any, Any]
"""The identity of an operator, an input of it, and the time and the container of a message that waits there."""


def messages_key(dataflow: int) -> Key:
    """Return where a checkpoint has the messages of a dataflow."""
    return dataflow, MESSAGES, 0


class MessagesInFlight:
    """The messages of one dataflow on one worker, as a state part: all of them, in each checkpoint that has them."""

    def __init__(self, scope: ScopeBuilder[Any]) -> None:
        self._scope = scope

    @property
    def holder(self) -> str:
        """The beginning of an error about a message that cannot be pickled: the first operator where such a one waits."""
        for operator in operators(self._scope.subgraph):
            try:
                dumps(list(operator.waiting()))
            except Exception:
                return (
                    f"operator {operator.info.name!r} ({operator.path}) on worker {operator.info.worker} has a message in flight"
                )
        return f"dataflow {self._scope.path} has a message in flight"

    def is_full(self, layers: Sequence[Layer], whole: bool) -> bool:
        return True

    def items(self, full: bool) -> Iterator[Piece]:
        """Yield every message that waits."""
        for operator in operators(self._scope.subgraph):
            for input, time, batch in operator.waiting():
                yield None, (without_functions(operator.info.identity), input, time, batch)

    def committed(self) -> None:
        """Do nothing: there is no log."""


def restore_messages(scope: ScopeBuilder[Any], messages: Iterable[Waiting]) -> None:
    """Put messages where they waited; ``ChangedDataflowError`` for an operator that is not there."""
    by_name = {without_functions(operator.info.identity): operator for operator in operators(scope.subgraph)}
    for name, input, time, batch in messages:
        operator = by_name.get(name)
        if operator is None:
            raise ChangedDataflowError(
                f"the checkpoint has a message for operator {name}, which is not there: run the program that wrote it, or use"
                " another directory to start anew"
            )
        operator.restore(input, time, batch)


def check_scopes(scopes: Iterable[ScopeBuilder[Any]]) -> None:
    """Raise ``StateError`` for a custom scope: only it knows what it has read."""
    for scope in scopes:
        for part in children(scope.subgraph):
            if isinstance(part, CustomScope):
                raise StateError(
                    f"scope {part.info.name!r} ({part.path}) is an object given to add_scope, whose messages in flight no"
                    " checkpoint can hold: take checkpoints between two times, or write it as operators"
                )


def operators(subgraph: Subgraph[Any, Any]) -> Iterator[Operator[Any]]:
    """Yield all operators, those of nested scopes included."""
    return (part for part in children(subgraph) if isinstance(part, Operator))


def children(subgraph: Subgraph[Any, Any]) -> Iterator[Any]:
    """Yield all that is no nested scope, of this scope and of those in it."""
    for child in subgraph.children:
        if child.nested is None:
            yield child.scope
        else:
            yield from children(child.nested)
