"""``bulk_synchronous``: a program that all workers run in step, and that exchanges messages with all of them between steps.

A loop with one operator in it, in which a round is a step. The program is a generator: it yields what to send to each worker, and
gets what each worker sent. The invariant: a step begins on a worker once a message of every worker has come there, so all workers
that decide by the same messages decide alike.

A generator cannot be saved, but it can be run again. So a program goes in phases. A checkpoint has what the phase began with, and
the messages of the few steps since; a run that resumes takes these steps again, without sending.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

import attrs

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.graphs.stages.gathering import gather, gather_loop
from timely.graphs.stages.repartitioned_state import register_parts
from timely.operators.type_variables import S, T
from timely.order import Product

R = TypeVar("R")

Steps: TypeAlias = Generator[Sequence[Any], list[Any], R]
"""Yields an object for each worker, gets an object of each worker in their order, and returns the result."""


class StepProgram(ABC, Generic[S]):
    """What each worker runs: it begins with a state, changes it in rounds of some steps each, and ends with a container.

    States and messages are picklable. A round changes the state after its last step only, since an attempt that resumes may take
    the steps before again.
    """

    format: ClassVar[int] = 1
    """What changes with the attributes of a state, and with the steps: a checkpoint in the middle has both."""

    @abstractmethod
    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[S]:
        """Return the state before the first round, given the containers of each input on this worker."""

    @abstractmethod
    def round(self, info: OperatorInfo, state: S) -> Steps[bool]:
        """Change the state; return whether another round follows, on all workers the same."""

    @abstractmethod
    def end(self, info: OperatorInfo, state: S) -> Steps[Any]:
        """Return the container."""


class _Message(NamedTuple):
    """What one worker sends another in a step."""

    receiver: int
    sender: int
    content: Any


_by_receiver: Final = Exchange(lambda message: message.receiver)


def bulk_synchronous(name: str, inputs: Sequence[Stream[T, Any]], program: StepProgram[Any]) -> Stream[T, Any]:
    """Return the containers that ``program`` ends with, one of each worker, at each time at which any worker receives anything.

    All workers run it, also those that receive nothing, and all must take the same number of steps. Each time is for itself.
    A checkpoint may be in the middle of a loop.

    Source: Valiant, "A bridging model for parallel computation" (1990).
    """
    running: _Running[T] = _Running(program)
    own = [(stream, Pipeline) for stream in inputs]
    (starts,) = gather(f"{name}: start", own, 1, lambda info, *_: [list(range(info.peers))])
    return gather_loop(
        name, [*own, (starts, Exchange(int))], _by_receiver, running.finish, keep=running.register, whole=_all_came
    )


def _all_came(info: OperatorInfo, time: Product[Any, int], collected: list[list[Any]]) -> bool:
    return time.inner > 0 and sum(map(len, collected[-1])) == info.peers


class _Phase(Enum):
    BEGIN = auto()
    ROUND = auto()
    END = auto()


class _Saved(NamedTuple):
    """A program between two steps: its phase, what that began with, and the messages of the steps since."""

    phase: _Phase
    argument: Any
    received: list[list[Any]]


class _Execution:
    """One worker's program of one outer time."""

    result: Any

    def __init__(self, program: StepProgram[Any], info: OperatorInfo, phase: _Phase, argument: Any) -> None:
        self._program, self._info = program, info
        self._enter(phase, argument)

    @classmethod
    def restored(cls, program: StepProgram[Any], info: OperatorInfo, saved: _Saved) -> _Execution:
        """Return what was saved. What its steps send is in flight already."""
        execution = cls(program, info, saved.phase, saved.argument)
        execution.step(None)
        for messages in saved.received:
            execution.step(messages)
        return execution

    def _enter(self, phase: _Phase, argument: Any) -> None:
        self.saved = _Saved(phase, argument, [])
        run: dict[_Phase, Callable[..., Steps[Any]]] = {
            _Phase.BEGIN: self._program.begin,
            _Phase.ROUND: self._program.round,
            _Phase.END: self._program.end,
        }
        self._steps = run[phase](self._info, argument)

    def step(self, messages: list[Any] | None) -> Sequence[Any] | None:
        """Take a step, the first of a phase without messages; return what to send, and after the last nothing but a result."""
        if messages is not None:
            self.saved.received.append(messages)
        while True:
            try:
                return next(self._steps) if messages is None else self._steps.send(messages)
            except StopIteration as end:
                phase, argument, _ = self.saved
                if phase is _Phase.END:
                    self.result = end.value
                    return None
                if phase is _Phase.BEGIN:
                    self._enter(_Phase.ROUND, end.value)
                else:
                    self._enter(_Phase.ROUND if end.value else _Phase.END, argument)
                messages = None


@attrs.frozen(eq=False)
class _Running(Generic[T]):
    """One worker's programs by outer time."""

    _program: StepProgram[Any]
    _executions: dict[T, _Execution] = attrs.field(factory=dict)

    def register(self, info: OperatorInfo) -> None:
        """Register the program of each outer time."""
        program = self._program
        format = f"{type(program).__name__}/{program.format}"
        register_parts(
            info, self._executions, format, lambda one: one.saved, lambda saved: _Execution.restored(program, info, saved)
        )

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        """Run a step; return the messages, and the result after the last."""
        *inputs, _, batches = map(list, collected)
        if time.inner == 0:
            execution = self._executions[time.outer] = _Execution(self._program, info, _Phase.BEGIN, inputs)
            contents = execution.step(None)
        else:
            execution = self._executions[time.outer]
            messages = sorted((message for batch in batches for message in batch), key=lambda message: message.sender)
            assert len(messages) == info.peers, f"{info.path}: {len(messages)} of {info.peers} workers took the same step"
            contents = execution.step([message.content for message in messages])
        if contents is None:
            del self._executions[time.outer]
            return [[], execution.result]
        return [[_Message(receiver, info.worker, content) for receiver, content in enumerate(contents)], []]
