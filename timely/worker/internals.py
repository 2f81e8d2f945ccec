"""What the packages above the worker use of it, and programs do not: tracers, state registries, the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from threading import enumerate as enumerate_threads
from threading import get_ident
from typing import Any

from timely.dataflow import ScopeBuilder, SyncActivator
from timely.dataflow.info import StateRegistry
from timely.worker.dataflows import Timers
from timely.worker.explanation_data import Explanation, Place
from timely.worker.tracer import Tracer
from timely.worker.worker import _EXPLAINERS, Worker


def set_explainer(explainer: Callable[[Worker, Place], Explanation]) -> None:
    """Set what ``Worker.explain`` calls."""
    _EXPLAINERS[:] = [explainer]


def tracers(worker: Worker) -> list[Tracer]:
    """Return the list of a worker's tracers, which may be changed before a dataflow is built."""
    return worker._tracers


def timers(worker: Worker) -> Timers:
    """Return what a worker does later."""
    return worker._timers


def sync_activator(worker: Worker, action: Callable[[], None]) -> SyncActivator:
    """Return an activator that runs an action on the worker's thread, for another thread to use."""
    return SyncActivator(action, worker._activations)


def runs_elsewhere(worker: Worker) -> bool:
    """Return whether another thread, which goes on, steps a worker."""
    return worker._activations.thread in {thread.ident for thread in enumerate_threads()} - {get_ident()}


def state_registries(worker: Worker) -> Callable[[int, str], StateRegistry] | None:
    """Return what makes the state registry of a dataflow, given its number and name; ``None`` without recovery."""
    return worker._state_registries


def set_state_registries(worker: Worker, registries: Callable[[int, str], StateRegistry] | None) -> None:
    """Set what makes the state registry of each dataflow that is built from now on."""
    worker._state_registries = registries


def has(worker: Worker, scope: ScopeBuilder[Any]) -> bool:
    """Return whether a dataflow of this worker is neither complete nor dropped."""
    return any(each is scope for each in worker.scopes)


def is_quiet(worker: Worker) -> bool:
    """Return whether no dataflow has anything to do, even if the worker were not paused."""
    return not worker._queue.ready and not worker._activations.pending


def expects(worker: Worker) -> bool:
    """Return whether a dataflow waits for a timer, another thread, or peers to take what was sent."""
    return bool(worker._timers.entries) or bool(worker._flow.waiting) or worker._expects_activation()


def finish(worker: Worker) -> None:
    """Run every dataflow to its end; the peers learn that this worker builds no more."""
    worker._finish()


def abort(worker: Worker, error: BaseException) -> None:
    """Stop every peer: this worker has failed."""
    worker._abort(error)
