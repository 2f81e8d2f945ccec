"""The path of one message and of one progress update: ``python -m benchmarks.paths`` prints the calls on each, by module.

The dataflow is input, exchange, map, probe. The counts are the library's own Python calls, with the steps of the workers in which
they happen. They depend on the code alone, not on the machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import timely
from timely.worker.transports import thread_transports

PACKAGE = str(Path(timely.__file__).parent)

Calls = Counter[tuple[str, str]]


def calls_of(action: Callable[[], object]) -> Calls:
    """Return how often each function of the library is called while ``action`` runs, as ``(module, function)``."""
    found: Calls = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            module = Path(code.co_filename).relative_to(PACKAGE).with_suffix("")
            found[".".join(module.parts), code.co_qualname] += 1

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


class Run:
    """Workers that are stepped by hand, with the dataflow built on each and one epoch behind them."""

    def __init__(self, peers: int) -> None:
        self.workers = [timely.Worker(transport) for transport in thread_transports(peers)]
        self.inputs, self.probes = [], []
        for worker in self.workers:
            with worker.dataflow(int, name="path") as scope:
                numbers, stream = scope.new_input()
                probe = stream.exchange(lambda x: x).map(lambda x: x + 1).probe()
            self.inputs.append(numbers)
            self.probes.append(probe)
        for number in range(peers):
            self.inputs[0].send(number)
        self.advance(1)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            for worker in self.workers:
                worker.step()

    def send(self) -> None:
        """One record from the first worker to the last, until nothing is left to do."""
        self.inputs[0].send(len(self.workers) - 1)
        self.step(3)

    def advance(self, time: int) -> None:
        """One epoch ends on the first worker (and before that on the others), until every probe has moved."""
        for numbers in self.inputs:
            numbers.advance_to(time)
        while any(probe.less_than(time) for probe in self.probes):
            self.step()


def table(calls: Calls, idle: Calls) -> Iterable[str]:
    """Yield lines: each module with its functions and calls, beyond those of as many steps with nothing to do."""
    beyond = calls - idle
    modules: dict[str, list[str]] = {}
    for (module, function), count in beyond.items():
        modules.setdefault(module, []).append(function if count == 1 else f"{function} × {count}")
    yield f"{sum(beyond.values())} calls in {len(modules)} files"
    for module, functions in sorted(modules.items()):
        yield f"  {module:32} {', '.join(sorted(functions))}"


def main() -> None:
    for peers in (2, 1):
        run = Run(peers)
        idle = calls_of(partial(run.step, 3))
        message = calls_of(run.send)
        print(f"\none message, {peers} worker{'s' * (peers > 1)}:", *table(message, idle), sep="\n")
        run.step()
        update = calls_of(partial(run.advance, 2))
        print(f"\none progress update, {peers} worker{'s' * (peers > 1)}:", *table(update, Counter()), sep="\n")


if __name__ == "__main__":
    main()
