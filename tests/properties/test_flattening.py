"""Nesting is invisible to progress: every operator's frontier is the one that a flat graph of the whole would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.puppets import Choices, Stage
from tests.support.nesting import Nesting
from tests.support.nesting_strategy import nestings
from timely import CycleError


def check_against_flat_graph(nesting: Nesting, data: st.DataObject, most: int, *, sharing: bool) -> None:
    """Fewer than ``most`` times, let operators of a nesting act and compare all frontiers with those of the flat graph."""
    choices = Choices(data)
    stage = Stage(nesting.repaired(), choices, sharing=sharing)
    for _ in range(choices.below(most)):
        stage.settle()
        assert stage.shown() == stage.true()
        if stage.puppets:
            for _ in range(1 + choices.below(3)):
                choices.among(stage.puppets).act()
    stage.settle()
    assert stage.shown() == stage.true()


@given(nestings(), st.booleans(), st.data())
def test_frontiers_in_a_nesting_equal_those_of_the_flat_graph(nesting: Nesting, sharing: bool, data: st.DataObject) -> None:
    check_against_flat_graph(nesting, data, most=12, sharing=sharing)


@given(nestings(), st.booleans(), st.data())
def test_closing_everything_empties_every_frontier_and_completes(nesting: Nesting, sharing: bool, data: st.DataObject) -> None:
    choices = Choices(data)
    stage = Stage(nesting.repaired(), choices, sharing=sharing)
    for _ in range(choices.below(10)):
        if stage.puppets:
            choices.among(stage.puppets).act()
        stage.worker.step()
    for _ in range(100):
        for puppet in stage.puppets:
            puppet.close()
        stage.worker.step()
    assert not any(stage.shown().values())
    assert not stage.worker.step()


@given(nestings(limits=False), st.booleans(), st.data())
def test_a_cycle_is_refused_exactly_if_time_need_not_advance_on_it(nesting: Nesting, sharing: bool, data: st.DataObject) -> None:
    if nesting.stuck():
        with pytest.raises(CycleError):
            Stage(nesting, Choices(data), sharing=sharing)
    else:
        Stage(nesting, Choices(data), sharing=sharing)
