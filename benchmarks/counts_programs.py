"""What ``benchmarks.counts`` counts, and how a process counts what it does itself.

``python -m benchmarks.counts_programs barrier 100`` runs a program, under whatever watches it; without arguments it prints, as
JSON, how many bytecodes each program executes per unit. Counts are by difference of two sizes, so that what is done once (making
a worker, imports, the end of a run) cancels out. Bytecodes do not see what C does inside of one, such as sorting a list.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any

import attrs

import timely
from benchmarks import control
from timely import Pipeline, Stream, Worker
from timely import differential as dd


@attrs.frozen
class Program:
    """A program of so many units, and the number of units to begin with; the second size has twice as many."""

    make: Callable[[int], Callable[[Worker], Any]]
    units: int
    unit: str

    def run(self, units: int) -> None:
        """Run so many units on one worker."""
        timely.execute(self.make(units))


def _building(operators: int) -> Callable[[Worker], None]:
    """Return the program that makes a chain of so many operators, and runs nothing."""

    def program(worker: Worker) -> None:
        with worker.dataflow() as scope:
            chain: Stream[int, Any] = scope.empty()
            for _ in range(operators):
                chain = chain.unary(Pipeline, "pass on", control.pass_on)
            chain.probe()

    return program


def _changes(result: Callable[[dd.Collection[int, Any]], dd.Collection[int, Any]], epochs: int) -> Callable[[Worker], None]:
    """Return the program of so many epochs, each of one more pair of a collection."""

    def program(worker: Worker) -> None:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            probe = result(pairs).probe()
        for epoch in range(epochs):
            session.insert((epoch, epoch))
            session.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called at once

    return program


PROGRAMS = {
    "barrier": Program(control.barrier, 200, "iteration"),
    "nested": Program(control.nested, 4 * control.INNER, "inner iteration"),
    "event_driven 1x100, no record": Program(lambda n: control.event_driven(100, n, record=False), 100, "epoch"),
    "event_driven 1x100, one record": Program(lambda n: control.event_driven(100, n, record=True), 10, "epoch"),
    "pingpong": Program(control.pingpong, 100, "round"),
    "change of a count": Program(partial(_changes, lambda pairs: pairs.count_by_key()), 100, "epoch"),
    "change of a join": Program(partial(_changes, lambda pairs: pairs.join(pairs)), 100, "epoch"),
    "building": Program(_building, 500, "operator"),
}


def bytecodes(work: Callable[[], object]) -> int:
    """Return how many bytecodes Python executes for ``work()`` in this thread; nobody else may be tracing it.

    >>> def twice(n):
    ...     return lambda: [x + 1 for x in range(n)]
    >>> bytecodes(twice(20)) - bytecodes(twice(10)) == bytecodes(twice(30)) - bytecodes(twice(20)) > 0
    True
    """
    gc.collect()
    gc.disable()
    try:
        return _executed(work)
    finally:
        gc.enable()


if sys.version_info >= (3, 12):

    def _executed(work: Callable[[], object]) -> int:
        count = 0

        def instruction(code: CodeType, offset: int) -> None:
            nonlocal count
            count += 1

        monitoring = sys.monitoring
        tool, events = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
        monitoring.use_tool_id(tool, "benchmarks")
        monitoring.register_callback(tool, events, instruction)
        monitoring.set_events(tool, events)
        try:
            work()
        finally:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)
        return count

else:

    def _executed(work: Callable[[], object]) -> int:
        count = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            if event == "opcode":
                count += 1
            elif event == "call":
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
        return count


def bytecodes_per_unit(program: Program) -> float:
    """Return how many bytecodes one more unit of a program takes."""
    program.run(program.units)  # what is imported or remembered when it is first needed
    few, many = (bytecodes(partial(program.run, units)) for units in (program.units, 2 * program.units))
    return (many - few) / program.units


if __name__ == "__main__":
    if sys.argv[1:]:
        PROGRAMS[sys.argv[1]].run(int(sys.argv[2]))
    else:
        print(json.dumps({name: bytecodes_per_unit(program) for name, program in PROGRAMS.items()}))
