"""When all of a logged part is saved anew, and what an operator is given of a log over several numbers of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.dataflow import OperatorInfo, route
from timely.dataflow.operator_state import Log, StatePart
from timely.recovery import Recovery, state_registry
from timely.recovery.manifest import Layer
from timely.recovery.state_registry import FLOOR, LAYERS, RegisteredState


def layers(*sizes: tuple[bool, int], peers: int = 2) -> list[Layer]:
    """What earlier checkpoints hold: whether all, and how many bytes."""
    return [Layer(str(n), peers, full, size) for n, (full, size) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("before", "full"),
    [
        ([], False),
        (layers((False, FLOOR)), False),
        (layers((False, FLOOR + 1)), True),
        (layers((True, 10 * FLOOR), (False, 19 * FLOOR)), False),
        (layers((True, 10 * FLOOR), (False, 19 * FLOOR), (False, 2 * FLOOR)), True),
        (layers(*[(False, 1)] * (LAYERS - 1)), False),
        (layers(*[(False, 1)] * LAYERS), True),
        (layers((False, 1), peers=3), True),
    ],
)
def test_a_log_that_has_grown_is_begun_anew(before: list[Layer], full: bool) -> None:
    info = timely.OperatorInfo("name", 0, "/flow/name#0", Any, 0, 2)  # type: ignore[arg-type]
    assert RegisteredState(info, StatePart(0, list, list, None, Log(True))).is_full(before) == full
    assert not RegisteredState(info, StatePart(0, None, list, None, Log(True))).is_full(before)
    assert RegisteredState(info, StatePart(0, list, list, None, None)).is_full(before)


def counting(counts: dict[str, int], calls: list[str]) -> Callable[..., Any]:
    """Return the constructor of an operator that counts words, and logs each new count; ``calls`` has what was asked of it."""

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        def save() -> Any:
            calls.append("save")
            return [(route(word), (word, n)) for word, n in counts.items()]

        def load(items: Any) -> None:
            found = list(items)
            calls.append(f"load {len(found)}")
            counts.update(found)

        def rescale(items: Any) -> None:
            calls.append(f"rescale {len(items)}")

        log = info.register_state(save, load, rescale=rescale, logged=True)

        def logic(input: Any) -> None:
            for _, batch in input:
                for word in batch:
                    counts[word] = counts.get(word, 0) + 1
                    log.append(route(word), (word, counts[word]))

        return logic

    return constructor


def words(where: Path, epochs: int, workers: int) -> tuple[dict[str, int], list[str], list[bool]]:
    """Count two words an epoch; return the counts, what was asked of worker 0, and which layers the last checkpoint has there."""
    calls: list[list[str]] = [[] for _ in range(workers)]

    def program(worker: timely.Worker) -> tuple[dict[str, int], list[bool]]:
        counts: dict[str, int] = {}
        with Recovery(worker, where) as recovery:
            with worker.dataflow(name="words") as scope:
                handle, stream = scope.new_input()
                pact = timely.Exchange(lambda word: word)
                stream.sink(pact, "count", counting(counts, calls[worker.index]))
            start = recovery.time or 0
            handle.advance_to(start)
            for epoch in range(start, start + epochs):
                if worker.index == 0:
                    handle.send_batch(["all", f"word{epoch % 7}"])
                handle.advance_to(epoch + 1)
                recovery.checkpoint(epoch + 1)
            handle.close()
            assert recovery._last is not None
            (found,) = recovery._last.layers.values()
        return counts, [layer.full for layer in found]

    results = timely.execute(program, workers=workers)
    return {word: n for counts, _ in results for word, n in counts.items()}, calls[0], results[0][1]


def test_a_log_is_read_over_all_layers_and_saved_anew_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_registry, "FLOOR", 300)
    _, calls, found = words(tmp_path, 3, workers=1)
    assert (calls, found) == ([], [False, False, False])
    counts, calls, found = words(tmp_path, 4, workers=1)
    assert calls[:2] == ["load 6", "save"]
    assert found[0] and not any(found[1:])
    assert counts["all"] == 7
    counts, calls, _ = words(tmp_path, 1, workers=3)
    assert calls[1:3] == ["rescale 1", "save"]
    assert counts == {"all": 8, "word0": 2} | {f"word{n}": 1 for n in range(1, 7)}
