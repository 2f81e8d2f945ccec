"""Logged state: when a checkpoint takes a full snapshot, and what an operator restores, also on another number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import timely
from timely.dataflow import OperatorInfo, route
from timely.recovery import Recovery


def counting(counts: dict[str, int], calls: list[str]) -> Callable[..., Any]:
    """Return the constructor of an operator that counts words, and logs each new count; ``calls`` has what was asked of it."""

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        def save() -> Any:
            calls.append("save")
            return [(route(word), (word, n)) for word, n in counts.items()]

        def load(items: Any) -> None:
            collected = list(items)
            calls.append(f"load {len(collected)}")
            counts.update(collected)

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


def words(where: Path, epochs: int, workers: int = 1, word: str = "") -> tuple[dict[str, int], list[str]]:
    """Count two words an epoch; return the counts, and the calls on worker 0 before and after each checkpoint."""
    calls: list[list[str]] = [[] for _ in range(workers)]

    def program(worker: timely.Worker) -> dict[str, int]:
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
                    handle.send_batch(["all", f"{word}{epoch % 7}"])
                handle.advance_to(epoch + 1)
                recovery.checkpoint(epoch + 1)
                calls[worker.index].append("checkpoint")
            handle.close()
        return counts

    results = timely.execute(program, workers=workers)
    return {word: n for counts in results for word, n in counts.items()}, calls[0]


def test_a_full_snapshot_is_written_after_sixteen_checkpoints(tmp_path: Path) -> None:
    _, calls = words(tmp_path, 18)
    assert calls == ["checkpoint"] * 16 + ["save"] + ["checkpoint"] * 2
    counts, calls = words(tmp_path, 1)
    assert calls == ["load 10", "checkpoint"]  # eight words in the snapshot, and two changes after it
    assert counts["all"] == 19


def test_a_full_snapshot_is_written_when_the_changes_are_large(tmp_path: Path) -> None:
    _, calls = words(tmp_path, 12, word="x" * 20_000)
    assert calls.index("save") == 4  # the changes of four checkpoints are more than 64 KiB
    assert calls.count("save") == 1  # and the next ones are less than twice the snapshot


def test_a_log_is_restored_on_another_number_of_workers_and_saved_anew(tmp_path: Path) -> None:
    words(tmp_path, 3)
    counts, calls = words(tmp_path, 4)
    assert calls == ["load 6"] + ["checkpoint"] * 4
    assert counts["all"] == 7
    counts, calls = words(tmp_path, 1, workers=3)
    assert calls[1:3] == ["rescale 1", "save"]
    assert counts == {"all": 8, "0": 2} | {f"{n}": 1 for n in range(1, 7)}
