"""The check of every invariant after each step of a simulation.

A dataflow is checked from the moment when the first worker has built it, until it is dropped or a worker fails. A violation is a
fault of the engine, or of an operator that bypasses it.
"""

from __future__ import annotations

import functools

from timely.errors import InvariantViolation
from timely.progress import ProgressGroups
from timely.testing.dataflow_checker import CheckedWorker, DataflowChecker
from timely.testing.flat_dataflow import Found
from timely.testing.invariants import violation
from timely.testing.liveness import holders
from timely.testing.provenance import BatchProvenance
from timely.testing.simulated_network import Network
from timely.testing.worker_state import SimulatedWorkerState
from timely.worker.dataflows import InstalledDataflow


class InvariantChecker:
    """Checks every dataflow of a run after each step; ``groups`` are those of aggregated progress, ``liveness`` adds L1."""

    def __init__(self, network: Network, groups: ProgressGroups | None = None, liveness: bool = False) -> None:
        self._liveness = liveness
        self.provenance = None if groups is None or groups.direct_only else BatchProvenance(groups)
        self._network = network
        self._workers: dict[int, CheckedWorker] = {}
        self._dataflows: dict[int, DataflowChecker] = {}
        self._closed: set[int] = set()
        self._fault: InvariantViolation | None = None
        self._disabled = False

    def add_worker(self, worker: CheckedWorker) -> None:
        self._workers[worker.index] = worker

    def built(self, worker: int, dataflow: InstalledDataflow) -> None:
        """Check a dataflow that a worker has just built."""
        number = dataflow.number
        if number in self._closed:
            return
        state = SimulatedWorkerState(worker, dataflow)
        checker = self._dataflows.get(number)
        if checker is None:
            fault = functools.partial(self._note, number)
            checker = DataflowChecker(number, state, self._network, self._workers, fault, self.provenance, self._liveness)
            self._dataflows[number] = checker
            self._raise_first(checker.check_graph())
        elif state.flat.places != checker.flat.places:
            self.dropped(number)  # the workers find out themselves that their graphs differ
            return
        checker.truth.add_worker(state)

    def flushed(self, worker: int, number: int) -> None:
        """Record that a worker has just flushed its progress of a dataflow."""
        if number in self._dataflows:
            self._dataflows[number].flushed(worker)

    def dropped(self, number: int) -> None:
        """Check a dataflow no longer: it was dropped somewhere, with what it held."""
        self._closed.add(number)
        self._dataflows.pop(number, None)

    def disable(self) -> None:
        """Check nothing more: a worker has failed, so that nothing need hold."""
        self._disabled = True

    def _note(self, number: int, invariant: str, difference: str) -> None:
        """Record the first violation, to be raised when the step is over: an operator's errors would be wrapped."""
        if self._fault is None and number not in self._closed:
            self._fault = violation(invariant, difference)

    def _raise_first(self, check: Found) -> None:
        """Raise the first violation of a check, and record it, since it may be wrapped or caught on its way."""
        for invariant, difference in check:
            self._fault = violation(invariant, difference)
            raise self._fault

    def check(self, stepped: int) -> None:
        """Check everything after the step of a worker; raise the first :class:`~timely.errors.InvariantViolation`."""
        self.raise_fault()
        if not self._disabled:
            for checker in self._dataflows.values():
                self._raise_first(checker.check(stepped))

    def holders(self) -> list[str]:
        """Return what is held and what waits in all dataflows, in words."""
        return [held for checker in self._dataflows.values() for held in holders(checker.truth)]

    def raise_fault(self) -> None:
        """Raise the violation that was found, if any, even if it was caught since."""
        if self._fault is not None:
            raise self._fault

    def check_end(self) -> None:
        for checker in self._dataflows.values():
            self._raise_first(checker.check_end())
