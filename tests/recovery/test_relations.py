"""Named relations: state is found by names, and a refused checkpoint says what is the same, new, gone and changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.errors import ChangedDataflowError, GraphError


def total(key: str, value: int, state: int | None) -> tuple[int, list[int]]:
    return (state or 0) + value, [(state or 0) + value]


def run(where: Path, names: Sequence[str], *, workers: int = 1) -> list[dict[str, int]]:
    """Add 1 to a total for each name, in the order of ``names``; ``name=text`` has a definition. Return the totals."""

    def program(worker: timely.Worker) -> dict[str, int]:
        seen: dict[str, Any] = {}
        with timely.Recovery(worker, where) as recovery:
            with worker.dataflow(int, name="flow") as scope:
                rows, stream = scope.new_input()
                for each in names:
                    name, _, definition = each.partition("=")
                    with scope.named(name, definition):
                        seen[name] = stream.map(lambda name: (name, 1)).state_machine(total).capture()
            begin = recovery.time or 0
            rows.advance_to(begin)
            if worker.index == 0:
                rows.send("all")
            rows.advance_to(begin + 1)
            recovery.checkpoint(begin + 1)
            rows.close()
            worker.run()
        return {name: value for name, output in seen.items() for _, batch in output.extract() for value in batch}

    return timely.execute(program, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_relations_keep_their_state_in_another_order(tmp_path: Path, workers: int) -> None:
    assert sum((sum(totals.values()) for totals in run(tmp_path, ["a", "b", "c"])), 0) == 3
    for count in (2, 3):
        totals = run(tmp_path, ["c", "a", "b"], workers=workers)
        assert {name: value for each in totals for name, value in each.items()} == {"a": count, "b": count, "c": count}


@pytest.mark.parametrize(
    ("names", "difference"),
    [
        (["a", "b=2"], r"same: a; gone: c; changed: b \(it was 1, and is 2\)"),
        (["a", "d", "b=1", "c"], "same: a, b, c; new: d"),
        (["b=1", "c"], "same: b, c; gone: a"),
    ],
)
def test_a_refusal_says_what_is_the_same(tmp_path: Path, names: list[str], difference: str) -> None:
    run(tmp_path, ["a", "b=1", "c"])
    with pytest.raises(ChangedDataflowError, match=rf"is of another dataflow: {difference}\. Run the program"):
        run(tmp_path, names)
    run(tmp_path, ["a", "b=1", "c"])


def test_names_are_of_one_relation_each_and_of_the_outermost_scope() -> None:
    with timely.Worker().dataflow(int) as scope:
        with scope.named("a"):
            pass
        with pytest.raises(GraphError, match=r"two relations named 'a', at test_relations.py:\d+ .* and at test_relations.py"):
            scope.named("a").__enter__()
        with scope.iterative() as loop:
            with pytest.raises(GraphError, match="named.'b'. in scope .*iterative#0.* part of what it names"):
                loop.named("b")
            handle, again = loop.feedback()
            again.connect_loop(handle)
