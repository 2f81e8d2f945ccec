"""What many objects cost Python's garbage collector that are made while a dataflow is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import timely

MANY = 120_000


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """A full collection before each, since what is made is moved once between two."""
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()


def build() -> list[list[int]]:
    """Make many objects in the block of a dataflow."""
    with timely.Worker().dataflow():
        return [[number] for number in range(MANY)]


def test_the_next_young_collection_does_not_go_through_them() -> None:
    made = build()
    assert len(made) == MANY
    assert len(gc.get_objects(generation=0)) < MANY / 10
    assert gc.get_freeze_count() == 0
    again = build()
    assert len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1)) > MANY / 10, len(again)


def test_what_the_program_froze_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    made = build()
    assert frozen / 2 < gc.get_freeze_count() <= frozen, len(made)
