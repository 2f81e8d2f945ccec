"""What random programs do, step by step, as text: ``python -m tests.testing.traces SEED COUNT``.

For each program there is a line with its number and a digest of everything that can be seen of its run: after each step the
frontier at every input of the worker that was stepped, and what it sent, word for word. With ``--full NUMBER`` the run of that
program is written out instead. The invariant: all of it is a function of the seed and of what the library does, so that two
builds of the same source write the same. To be run with a fixed ``PYTHONHASHSEED``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.testing.kits import KITS
from timely.dataflow import Operator
from timely.progress import PROGRESS_MODES, ProgressGroups
from timely.testing import Network, Resume, Simulation, dataflows
from timely.testing.random_dataflows import Dataflow

WORKERS = 4


class Telling(Network):
    """A network that knows what was sent since somebody asked."""

    def __init__(self, peers: int) -> None:
        super().__init__(peers)
        self.sent_lines: list[str] = []

    def send(self, source: int, target: int, message: Any) -> None:
        """Take a message on its way, and note what it says."""
        self.sent_lines.append(f"{source} -> {target}: {message!r}")
        super().send(source, target, message)


class Traced(Simulation[Any]):
    """A simulation that writes down what each step has led to."""

    def __init__(self, program: Any, seed: int, routes: ProgressGroups) -> None:
        self.lines: list[str] = []
        super().__init__(program, WORKERS, seed, network=Telling, groups=routes)

    def _resume(self, decision: Resume) -> bool:
        nothing = super()._resume(decision)
        network: Any = self.network
        seen, network.sent_lines = network.sent_lines, []
        self.lines += [repr(decision), *seen, *frontiers(self.workers[decision.worker])]
        return nothing


def frontiers(worker: Any) -> Iterator[str]:
    """Return a line for each input of each operator of a worker that observes its frontier."""
    for scope in worker.scopes:
        for nested in scope.scopes:
            for child in nested.children:
                operator = child.scope
                for port in operator.input_ports if isinstance(operator, Operator) else ():
                    yield f"  {operator.path}[{port.index}]: {sorted(map(repr, port.elements))}"


@st.composite
def cases(draw: st.DrawFn) -> tuple[Dataflow, int, ProgressGroups]:
    """Make a dataflow over times of any kind, the seed of a schedule, and who sends progress to whom."""
    flow = draw(st.sampled_from(sorted(KITS)).flatmap(lambda name: dataflows(KITS[name])))
    routes = ProgressGroups.named(draw(st.sampled_from(PROGRESS_MODES)), WORKERS, draw(st.sampled_from([1, 2])))
    return flow, draw(st.integers(0, 10**6)), routes


def traces(first: int, count: int) -> Iterator[list[str]]:
    """Return what so many programs do, which depend on the number ``first``."""
    collected: list[tuple[Dataflow, int, ProgressGroups]] = []

    @seed(first)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(cases())
    def collect(case: tuple[Dataflow, int, ProgressGroups]) -> None:
        collected.append(case)

    collect()
    for flow, schedule, routes in collected:
        run = Traced(flow.program, schedule, routes)
        run.run()
        yield [repr(flow), *run.lines, repr(run.results)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.testing.traces")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--full", type=int, metavar="NUMBER")
    options = parser.parse_args()
    for number, lines in enumerate(traces(options.seed, options.count)):
        if options.full is None:
            digest = blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()
            print(number, len(lines), digest, flush=True)
        elif options.full == number:
            sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
