"""The benchmarks tell the truth: ratios go by round, a growth is noticed, and a wrong answer is refused."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from benchmarks import counts, counts_programs, measure, peers
from benchmarks.counts_programs import PROGRAMS, Program, bytecodes_per_unit
from benchmarks.measure import YARDSTICK, Measured, in_turn
from timely import Worker


@pytest.mark.parametrize("module", [counts, counts_programs, measure])
def test_the_examples_of_the_benchmarks_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    ours, theirs = Measured([1, 10, 3]), Measured([2, 30, 4])
    ratio = theirs / ours
    assert isinstance(ratio, Measured)
    assert float(ratio) == 2.0
    assert ratio.rounds == (2.0, 3.0, 4 / 3)
    assert [float(figure) for figure in (1 / ours, 3 * ours, ours * ours)] == [1 / 3, 9.0, 9.0]


def test_measurements_of_different_rounds_are_compared_by_their_medians() -> None:
    assert float(Measured([4, 6]) / Measured([1, 2, 3])) == 2.5


def test_works_take_turns_and_every_other_round_goes_backwards() -> None:
    order: list[str] = []

    def work(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    result = in_turn({"a": lambda: work("a", 1), "b": lambda: work("b", 2)}, rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [len(result[name].rounds) for name in (YARDSTICK, "a")] == [3, 3]
    assert result["b"].rounds == (2.0, 2.0, 2.0)


def counted(passes: int) -> Program:
    """A program of which each unit goes so often round a loop."""

    def make(units: int) -> Any:
        def program(worker: Worker) -> None:
            for _ in range(units):
                for _ in range(passes):
                    pass

        return program

    return Program(make, 5, "unit")


def test_a_program_that_does_a_fifth_more_is_noticed_and_one_that_does_as_much_is_not() -> None:
    before = {"same": bytecodes_per_unit(counted(200)), "more": bytecodes_per_unit(counted(200))}
    now = {"same": bytecodes_per_unit(counted(204)), "more": bytecodes_per_unit(counted(240))}
    changes = counts.compare(before, now)
    assert [change.name for change in counts.grown(changes)] == ["more"]
    assert "GREW: more: " in counts.verdict("bytecodes", changes)
    assert "1 grew by more than 3%, 0 fell, 1 as before" in counts.verdict("bytecodes", changes)
    assert "0 grew by more than 3%, 1 fell" in counts.verdict("bytecodes", counts.compare(now, before))


def test_the_control_plane_executes_as_many_bytecodes_each_time() -> None:
    for name in ("barrier", "pingpong"):
        program = attrs.evolve(PROGRAMS[name], units=20)
        assert bytecodes_per_unit(program) == pytest.approx(bytecodes_per_unit(program), rel=0.005)


def test_comparing_says_what_grew_and_renewing_makes_it_the_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "BASELINE", tmp_path / "counts.json")
    monkeypatch.setattr(counts, "count", lambda kind: {"barrier": 100.0})
    assert counts.main("bytecodes", renew=True) == 0
    assert "there is no baseline for this version" in capsys.readouterr().out
    monkeypatch.setattr(counts, "count", lambda kind: {"barrier": 120.0})
    assert counts.main("bytecodes", renew=False) == 1
    assert "GREW: barrier: 100 -> 120 (+20.0%)" in capsys.readouterr().out
    assert counts.baseline("bytecodes") == {"barrier": 100.0}
    assert counts.baseline("instructions") == {}


def test_the_committed_baseline_knows_the_programs_that_are_counted() -> None:
    baselines = json.loads(counts.BASELINE.read_text())
    assert {"bytecodes", "instructions"} >= baselines.keys() >= {"bytecodes"}
    for versions in baselines.values():
        for result in versions.values():
            assert result.keys() == PROGRAMS.keys()


def test_an_answer_that_misses_or_miscounts_a_word_is_refused() -> None:
    expected = {"tea": 2, "two": 1}
    peers.check([("tea", 1), ("two", 1), ("tea", 1)], expected, "someone")
    with pytest.raises(AssertionError, match="someone: 1 keys, and not the 2"):
        peers.check([("tea", 2)], expected, "someone")
    with pytest.raises(AssertionError, match="someone: 1 keys have another value, among them 'two': 2"):
        peers.check([("tea", 2), ("two", 2)], expected, "someone")
