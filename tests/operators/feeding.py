"""Running an operator on what is sent at any times in any order, on real or simulated workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

import timely
from timely.testing import simulate

Sends = Sequence[tuple[Any, Any]]
Build = Callable[..., Any]

sizes = st.integers(1, 3)
seeds = st.none() | st.integers(0, 10**6)


def execute(program: Callable[[timely.Worker], Any], workers: int, seed: int | None) -> list[Any]:
    """The results of the workers: real ones, or with a seed simulated ones."""
    if seed is None:
        return timely.execute(program, workers=workers)
    return simulate(program, workers, seed).results


def run(build: Build, *sends: Sends, time: Any = int, workers: int = 1, seed: int | None = None) -> list[Counter[Any]]:
    """What comes out of the streams that ``build(input, ...)`` makes: for each, how often each ``(time, record)`` on any worker.

    ``sends`` are ``(time, record)`` for each input, in the order in which they are sent, dealt to the workers in turn.
    """

    def program(worker: timely.Worker) -> list[Counter[Any]]:
        with worker.dataflow(time) as scope:
            inputs = [scope.new_unordered_input() for _ in sends]
            made = build(*[stream for _, stream in inputs])
            seen = [stream.capture() for stream in (made if isinstance(made, tuple) else (made,))]
        queues = [list(sent[worker.index :: worker.peers]) for sent in sends]
        while any(queues):
            for ((handle, capability), _), queue in zip(inputs, queues, strict=True):
                if queue:
                    at, record = queue.pop(0)
                    handle.session(capability.delayed(at)).give(record)
            worker.step()
        for (_, capability), _ in inputs:
            capability.drop()
        worker.run()
        return [Counter((at, record) for at, batch in capture.messages for record in batch) for capture in seen]

    results = execute(program, workers, seed)
    return [sum(parts, Counter()) for parts in zip(*results, strict=True)]
