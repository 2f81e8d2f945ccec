"""A bounded model checker: every state that a model reaches, with every check in each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

import attrs

from timely.errors import InvariantViolation, ProgressError

S = TypeVar("S")
D = TypeVar("D")


class Model(Protocol[S, D]):
    """What is explored. States are immutable and hashable, so that a search recognises where it has been.

    >>> class Lamp:
    ...     initial = lambda self: "off"
    ...     decisions = lambda self, state: ["press"]
    ...     after = lambda self, state, decision: "on" if state == "off" else "off"
    ...     check = lambda self, state, before: None
    >>> explore(Lamp())
    Explored(states=2, steps=2, deep=1, complete=True)
    """

    def initial(self) -> S:
        """Return the state at the start."""

    def decisions(self, state: S, /) -> Iterable[D]:
        """Return what may happen next."""

    def after(self, state: S, decision: D, /) -> S:
        """Return the state after a decision. ``ProgressError`` is a violation of the invariant ``protocol``."""

    def check(self, state: S, before: S | None, /) -> None:
        """Raise :class:`~timely.errors.InvariantViolation` for what does not hold of a state, or of the step to it."""


@attrs.frozen
class Explored:
    """The number of ``states`` and of ``steps`` between them, and the depth of the last state; whether these were all.

    >>> Explored(states=3, steps=2, deep=2, complete=True).complete
    True
    """

    states: int
    steps: int
    deep: int
    complete: bool


def explore(model: Model[S, D], *, max_states: int | None = None, max_seconds: float | None = None) -> Explored:
    """Visit and check every state of a model, nearest first, up to ``max_states`` or for ``max_seconds``.

    Raises the :class:`~timely.errors.InvariantViolation` with the fewest ``decisions``.

    >>> class Account:
    ...     initial = lambda self: 2
    ...     decisions = lambda self, balance: [-1, -2]
    ...     after = lambda self, balance, withdrawal: balance + withdrawal
    ...     def check(self, balance, before):
    ...         if balance < 0:
    ...             raise InvariantViolation("solvent", f"the balance is {balance}")
    >>> explore(Account())
    Traceback (most recent call last):
    timely.errors.InvariantViolation: solvent: the balance is -1; after
      -1
      -2
    """
    first = model.initial()
    traces: dict[S, tuple[S, D] | None] = {first: None}
    queue = deque([(first, 0)])
    steps = deep = 0
    end = None if max_seconds is None else time.monotonic() + max_seconds
    model.check(first, None)
    while queue:
        if end is not None and time.monotonic() > end:
            return Explored(len(traces), steps, deep, complete=False)
        state, deep = queue.popleft()
        for decision in model.decisions(state):
            steps += 1
            try:
                following = model.after(state, decision)
                if following not in traces:
                    if max_states is not None and len(traces) >= max_states:
                        return Explored(len(traces), steps, deep, complete=False)
                    traces[following] = state, decision
                    queue.append((following, deep + 1))
                model.check(following, state)
            except ProgressError as error:
                raise _violation("protocol", str(error), traces, state, decision) from error
            except InvariantViolation as violation:
                raise _violation(violation.invariant, violation.message, traces, state, decision) from None
    return Explored(len(traces), steps, deep, complete=True)


def _violation(invariant: str, message: str, traces: Mapping[S, tuple[S, D] | None], state: S, last: D) -> InvariantViolation:
    """Return the violation with the decisions that lead to it."""
    decisions = [last]
    while (trace := traces[state]) is not None:
        state, decision = trace
        decisions.append(decision)
    decisions.reverse()
    listing = "\n".join(f"  {decision}" for decision in decisions)
    return InvariantViolation(invariant, f"{message}; after\n{listing}", decisions)
