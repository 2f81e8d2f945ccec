"""Label propagation, against its definition, on any number of workers.

White box: that the state of a complete epoch is dropped shows in no result.
"""

from __future__ import annotations

from typing import Any

import pytest

import timely
from tests.graphs.running import run, table_of
from timely.graphs import label_propagation
from timely.graphs.labels import _Voting


def test_the_state_of_a_complete_epoch_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[_Voting[int]] = []
    begin = _Voting.__init__

    def noted(self: _Voting[int], rounds: int) -> None:
        begin(self, rounds)
        made.append(self)

    monkeypatch.setattr(_Voting, "__init__", noted)
    run([table_of([(1, 2), (2, 3)]), table_of([(7, 8)])], build=label_propagation, workers=2)
    assert [voting._parts for voting in made] == [{}, {}]


@pytest.mark.parametrize("rounds", [-1, 1.5, None])
def test_rounds_of_labels_that_cannot_be(rounds: Any) -> None:
    with pytest.raises(timely.ConfigurationError, match=f"rounds must be 0 or more, not {rounds}"):
        timely.example(lambda scope: label_propagation(scope.empty(), rounds=rounds))
