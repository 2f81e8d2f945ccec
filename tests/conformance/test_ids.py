"""Every id of the conformance list has a test whose name begins with it, or a reason why it has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

IDS = {
    "order and summaries": "O1 O2 O3 O4 O5 O6 O7",
    "antichains": "A1 A2 A3 A4 A5 A6 A7 A8 A9 A11",
    "mutable antichains": "M1 M2 M3 M4 M5 M6 M7 M8 M11",
    "change batches": "C1 C2 C3 C4 C5 C6",
    "reachability": "R1 R2 R3 R5 R6 R7",
    "capabilities and notificators": "K1 K2 K3 K5 N4 N5 N6 N7 N8 N9",
    "operators": "P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13 P14 P15 P16 P17 P18 P20 P21 P22 P23 P25 P26 P27 P28 P29",
    "loops and termination": "L1 L2 L3 L4 L5 L9 L10",
    "probes": "B1 B2 B4",
    "capture and replay": "E1 E2 E3 E4 E5 E8 E9 E10",
    "workers": "W1 W2 W3 W4 W5 W6 W7 W8 W9 W10 W11 W12",
    "programs": "X1 X2 X3 X4 X5 X7 X8 X9",
}
WITHOUT = {
    "W7": "of byte buffers that can be put together again, which the transport does not have",
    "X8": "measures time and has no result",
}


def found() -> set[str]:
    """The ids that the name of some test begins with."""
    sources = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"^def test_([A-Z]+\d+)_", source, re.MULTILINE)}


@pytest.mark.parametrize("subject", IDS)
def test_every_id_has_a_test_or_a_reason(subject: str) -> None:
    assert set(IDS[subject].split()) - found() - set(WITHOUT) == set()


def test_no_id_has_both_a_test_and_a_reason_for_none() -> None:
    assert set(WITHOUT) <= {name for names in IDS.values() for name in names.split()}
    assert set(WITHOUT) & found() == set()
