"""L1: at rest, no operator holds a capability at a time that its inputs have passed; and what is held, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from timely.errors import brief
from timely.progress import Source, Target
from timely.testing.flat_dataflow import FlatDataflow, Found, Frontiers, Place
from timely.testing.global_state import GlobalState


def check_liveness(truth: GlobalState, true: Frontiers) -> Found:
    """L1: compare each capability of an operator with what may still come to its inputs, by the ``true`` frontiers.

    Sources hold what their program likes, and so does an output that no input leads to. Custom scopes may wait for others.
    """
    for worker, state in truth.states.items():
        ours = {(scope, operator.index): operator.path for scope, operator in state.operators}
        for (place, time), count in truth.held[worker].items():
            scope, location = truth.flat.places[place]
            path = ours.get((scope, location.node))
            if count > 0 and isinstance(location, Source) and path is not None:
                arrivals = list(_arrivals(truth.flat, place, true))
                if arrivals and not any(arrival <= time for times in arrivals for arrival in times):
                    held = f"{path} on worker {worker} holds a capability at {brief(time)} for its output {location.port}"
                    yield "L1", f"{held}: it must drop or downgrade it once its inputs have passed"


def _arrivals(flat: FlatDataflow, place: Place, true: Frontiers) -> Iterator[list[Any]]:
    """Yield, for each way to an output from an input of its operator, the times that may still result there."""
    scope, output = flat.places[place]
    for port, row in enumerate(flat.operators[scope, output.node].summaries):
        frontier = true[flat.numbers[scope, Target(output.node, port)]]
        for summary in row[output.port]:
            results = [summary.results_in(time) for time in frontier]
            yield [result for result in results if result is not None]


def holders(truth: GlobalState) -> list[str]:
    """Return the capabilities of all workers in words, and how many messages wait where."""
    held = [
        f"a capability of {truth.flat.operators[scope, location.node].path} on worker {worker} at {brief(time)}"
        for worker in truth.states
        for (place, time), count in truth.held[worker].items()
        for scope, location in [truth.flat.places[place]]
        if count > 0 and isinstance(location, Source)
    ]
    waiting = [(*truth.flat.places[place], time) for place, time in truth.counts]
    return held + [
        f"a message for {truth.flat.operators[scope, location.node].path} at {brief(time)}"
        for scope, location, time in waiting
        if isinstance(location, Target)
    ]
