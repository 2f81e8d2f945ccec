"""The table of invariants, its page, and the tests that show each of them to be checked.

White box: what is upright and what is justified is decided on counts that no right run has.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import timely
from tests.testing import test_simulator_broken, test_simulator_negative
from timely.testing import INVARIANTS, Invariant
from timely.testing.flat_dataflow import Counts, FlatDataflow

PAGE = Path(__file__).parents[2] / "docs" / "invariants.md"

NUMBERS = {
    "S": range(1),
    "OC": range(1, 7),
    "X": range(1, 7),
    "I": range(1, 8),
    "G": range(1, 12),
    "Z": range(1, 6),
    "L": range(1, 2),
}


def paragraphs() -> dict[str, str]:
    """Each invariant's paragraphs in the page, by its id."""
    parts = re.split(r"^##+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True) if re.fullmatch(r"[A-Z]+\d+", name)}


def test_every_invariant_is_there_once() -> None:
    assert list(INVARIANTS) == [f"{letters}{number}" for letters, numbers in NUMBERS.items() for number in numbers]
    assert all(invariant.sentence and invariant.source for invariant in INVARIANTS.values())


def test_every_invariant_has_a_paragraph_in_the_docs() -> None:
    result = paragraphs()
    assert list(result) == list(INVARIANTS)
    for name, text in result.items():
        assert re.search(r"\[(Naiad|book|posts|AMIR|ITP)\]", text), f"{name} has no source"


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_every_invariant_has_the_moment_of_its_check_as_on_the_page(invariant: Invariant) -> None:
    if invariant.checked in INVARIANTS:
        assert INVARIANTS[invariant.checked].checked not in INVARIANTS
        expected = f"Checked by {invariant.checked}"
    else:
        expected = f"Checked {invariant.checked}"
    assert expected in paragraphs()[invariant.id].replace("\n", " ")


def objected_to() -> set[str]:
    """The ids that some negative test asks for."""
    tests = [*vars(test_simulator_broken), *vars(test_simulator_negative)]
    named = {match[1] for name in tests if (match := re.match(r"test_T9_(?:INV_)?([A-Z]+\d+)_", name))}
    for cases, place in (
        (test_simulator_broken.FOLLOWS, 0),
        (test_simulator_broken.FORGED, 1),
        (test_simulator_negative.DEEDS, 0),
    ):
        named |= {str(case[place]) for case in cases}
    for _, names in test_simulator_negative.NETWORKS:
        named |= names
    return named


def test_T9_for_every_invariant_that_is_checked_something_is_broken() -> None:
    checked = {name for name, invariant in INVARIANTS.items() if invariant.checked not in INVARIANTS}
    assert objected_to() & set(INVARIANTS) == checked


def graph() -> FlatDataflow:
    """An input, whose output is place 0, and an exchange with its input and output at places 1 and 2."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        scope.new_input()[1].exchange(lambda x: x)
    return FlatDataflow(scope.scopes)


@pytest.mark.parametrize(
    ("changes", "held", "upright", "justified"),
    [
        ({(0, 0): -1, (0, 5): 1}, {(0, 5): 1}, True, True),  # a downgrade
        ({(0, 5): 1}, {(0, 5): 1}, True, False),  # half of it: the capability is there, and came from nowhere
        ({(0, 5): 1}, {(0, 5): 2}, True, True),  # one more of what is held
        ({(0, 5): 1}, {(0, 4): 1, (0, 5): 1}, True, True),  # another one, from an earlier one
        ({(1, 5): 1}, {(0, 5): 1}, True, True),  # a message, by a capability that is kept
        ({(1, 5): 1, (0, 5): -1}, {}, True, True),  # a message, by a capability that is dropped
        ({(1, 5): 1}, {}, False, True),  # a message by nothing
        ({(1, 5): 1, (0, 6): -1}, {}, False, True),  # a message by a later capability
        ({(1, 5): 1, (2, 0): -1}, {}, False, True),  # a message by what does not lead there
        ({(1, 5): -1, (2, 5): 1}, {(2, 5): 1}, True, True),  # a capability from a message
        ({(1, 5): -1}, {}, True, True),  # a message that was read for nothing
    ],
)
def test_INV_X1_INV_X2_I3_upright_and_justified_counts(changes: Counts, held: Counts, upright: bool, justified: bool) -> None:
    checks = graph()
    assert (not list(checks.check_upright("X1", changes, held))) is upright
    assert (not list(checks.check_justified(changes, held))) is justified
    named = {invariant for invariant, _ in checks.check_ends({}, [changes], held)}
    assert named == ({"X2"} if not upright else set() if justified else {"I3"})
    named = {invariant for invariant, _ in checks.check_ends(changes, [], held)}
    assert named == ({"X1"} if not upright else set() if justified else {"I3"})


def test_INV_X2_every_end_is_looked_at() -> None:
    """What is sent and what it was sent with, in two batches: the latter alone would do no harm, the former would."""
    drop, send = {(0, 5): -1}, {(1, 5): 1}
    checks = graph()
    assert not list(checks.check_ends(drop, [send], {}))
    assert not list(checks.check_ends({}, [send, drop], {}))
    assert [invariant for invariant, _ in checks.check_ends({}, [drop, send], {})] == ["X2"]
    assert [invariant for invariant, _ in checks.check_ends(send, [drop], {})] == ["X1"]
