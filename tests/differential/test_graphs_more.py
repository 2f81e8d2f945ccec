"""Searches that come and go leave nothing behind."""

from __future__ import annotations

import random

import timely
from timely import differential as dd
from timely.testing.differential import updates_in_traces


def test_answered_searches_are_forgotten() -> None:
    """Each search from both ends keeps what it visited; a pair that is removed takes that with it."""
    chance = random.Random(2)
    edges = [(chance.randrange(300), chance.randrange(300)) for _ in range(900)]
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            distances = dd.graphs.bidirectional_search(dd.collection(scope, edges).distinct(), pairs).output()
        before = 0
        for epoch in range(60):
            pair = chance.randrange(300), chance.randrange(300)
            session.insert(pair)
            session.advance_to(2 * epoch + 1)
            answers = distances.at(2 * epoch)
            assert len(answers) <= 1 and all(asked == pair for asked, _ in answers)
            session.remove(pair)
            session.advance_to(2 * epoch + 2)
            assert distances.at(2 * epoch + 1) == {}
            distances.forget(2 * epoch + 1)
            if epoch == 10:
                before = sum(updates_in_traces())
        assert sum(updates_in_traces()) < 1.5 * before
        session.close()
        worker.run()
