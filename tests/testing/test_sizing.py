"""What progress costs, counted: of real workers and of the model, which agree; and the pictures that are drawn of it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.plot import Curve, plot
from benchmarks.progress_traffic import Drive, lockstep, model, scattered
from benchmarks.sizing_traffic import DATAFLOWS, barrier, cost
from timely import ConfigurationError, Worker
from timely.progress import ProgressGroups

ROUTES = [
    (ProgressGroups.direct(4), 1),
    (ProgressGroups.process(4, 2), 2),
    (ProgressGroups.central(4), 1),
    (ProgressGroups.central(4, 2), 2),
    (ProgressGroups.tree(9, 3), 1),
    (ProgressGroups.tree(8, 2, 2), 2),
]


@pytest.mark.parametrize(("routes", "each"), ROUTES, ids=lambda value: getattr(value, "groups", value))
def test_the_model_of_a_barrier_takes_what_real_workers_take(routes: ProgressGroups, each: int) -> None:
    assert model(routes, 5, 15, each) == lockstep(barrier, routes, 5, 15, each)


def test_aggregated_progress_is_less_than_direct_progress() -> None:
    direct, central = model(ProgressGroups.direct(16)), model(ProgressGroups.central(16))
    process = model(ProgressGroups.process(16, 4), each=4)
    assert process.traffic.messages < direct.traffic.messages / 8
    assert central.traffic.messages < direct.traffic.messages / 7
    assert process.busiest < direct.busiest < central.busiest + 1
    assert direct.turns < central.turns < process.turns


def test_what_never_ends_an_iteration_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.progress_traffic._MOST_TURNS", 10)

    def idle(worker: Worker) -> Drive:
        with worker.dataflow() as scope:
            scope.new_input()
        return lambda: 0

    with pytest.raises(ConfigurationError):
        lockstep(idle, ProgressGroups.direct(2))
    with pytest.raises(ConfigurationError):
        scattered(idle, ProgressGroups.direct(2))


@pytest.mark.parametrize("name", DATAFLOWS)
def test_progress_for_one_peer_does_not_depend_on_the_number_of_workers(name: str) -> None:
    few, many = cost(name, 8)[0], cost(name, 16)[0]
    assert few == many


def test_a_plot_names_its_curves() -> None:
    pytest.importorskip("matplotlib")
    picture = ElementTree.fromstring(plot("a < b", [Curve("flat", [(1, 10), (4, 10)]), Curve("steep", [(1, 10), (4, 1000)])]))
    assert {"a < b", "flat", "steep"} <= {(text.text or "").strip() for text in picture.iter("{http://www.w3.org/2000/svg}text")}
