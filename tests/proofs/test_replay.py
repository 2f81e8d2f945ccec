"""What the machine-checked model computed, replayed on the code; and faults in the code, each of which a replay notices.

Needs no Coq: the traces are committed. ``python -m tests.proofs`` computes them again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.proofs import prover, traces
from tests.proofs.cases import Case
from tests.proofs.faults import FAULTS, Fault
from tests.proofs.replay import REPLAYS, replay_exchange
from tests.testing.programs import interpreted
from timely.errors import TimelyError


@pytest.mark.parametrize("family", REPLAYS)
def test_the_code_does_what_the_model_computed(family: str) -> None:
    for case, answer in traces.load(family):
        REPLAYS[family](case, answer)


def _without_forwarding(case: Case) -> bool:
    return bool(case["mode"] == "direct")


def test_batches_that_arrive_as_one_are_counted_as_one_by_one() -> None:
    for case, answer in traces.load("exchanges"):
        if _without_forwarding(case):
            replay_exchange(case, answer, merge=True)


@interpreted
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.patch(monkeypatch)
    with pytest.raises((AssertionError, TimelyError)):
        for case, answer in traces.load(fault.family):
            if not fault.merge:
                REPLAYS[fault.family](case, answer)
            elif _without_forwarding(case):
                replay_exchange(case, answer, merge=True)


def test_every_theorem_that_the_page_names_is_there() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "invariants.md").read_text("utf-8")
    page = page.partition("## What is proved, and how")[2]
    sources = "".join((prover.SOURCES / f"{name}.v").read_text("utf-8") for name in prover.order())
    proved = set(re.findall(r"^(?:Theorem|Definition) (\w+)", sources, re.MULTILINE))
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page)) - {"check_summary", "check_refinement"}
    assert len(named) > 20
    assert named <= proved


def test_nothing_is_assumed_or_left_open() -> None:
    assert prover.unproved() == []
