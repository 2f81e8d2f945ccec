"""How much a run of the tests covers, counted while it runs: ``pytest --figures``, or with it any choice of tests.

The invariant: only what ended without an objection is counted, and nothing of what is broken on purpose. A caller may add up the
figures of runs of different tests, as is done here for the processes of one run (``pytest -n 3``). What a test draws by itself,
by ``hypothesis.find`` or by one of the laws, comes on top.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LINES = {
    "cases": "random cases of properties (Hypothesis)",
    "runs": "simulated interleavings of whole dataflows, each with all invariants after each turn",
    "decisions": "    turns and deliveries in them",
    "walks": "simulated interleavings of the exchange of progress",
    "steps": "    steps in them",
    "searches": "searches of the model checker through the interleavings of a configuration",
    "states": "    different states in them",
}


@contextmanager
def counted(prop: Any, count: Callable[[], None]) -> Iterator[None]:
    """Call ``count`` after each case of a property that holds."""
    case = prop.hypothesis.inner_test

    @functools.wraps(case)
    def counting(*values: Any, **named: Any) -> None:
        case(*values, **named)
        count()

    prop.hypothesis.inner_test = counting
    try:
        yield
    finally:
        prop.hypothesis.inner_test = case


def report_after(owner: Any, name: str, report: Callable[..., None]) -> None:
    """Call ``report`` whenever ``name`` of a class or module has returned, with the result and all arguments."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def reporting(*values: Any, **named: Any) -> Any:
        result = function(*values, **named)
        report(result, *values, **named)
        return result

    setattr(owner, name, reporting)


def worker_output(config: pytest.Config) -> dict[str, Any]:
    """Return where a process that runs some of the tests leaves what the one that reports is to know; else nobody looks there."""
    left: dict[str, Any] = getattr(config, "workeroutput", {})
    return left


def output_of(node: Any) -> dict[str, Any]:
    """Return what a process that has ended left; nothing if it crashed."""
    left: dict[str, Any] = getattr(node, "workeroutput", {})
    return left


class Figures:
    """A plugin for pytest that counts what the tests cover."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._watch()

    def _watch(self) -> None:
        """Have simulations and searches report themselves, those of rules that are broken on purpose excepted."""
        from tests.support import model_checker
        from tests.support.exchange_checks import Configuration
        from tests.support.exchange_rules import ExchangeRules
        from tests.support.exchange_simulation import ExchangeSimulation
        from tests.support.model_checker import Explored
        from timely.testing import Simulation

        def ran(_: None, run: Simulation[Any], *values: Any, **named: Any) -> None:
            self.totals.update(runs=1, decisions=len(run.decisions))

        def began(_: None, walk: ExchangeSimulation, *values: Any, **named: Any) -> None:
            self.totals["walks"] += type(walk.rules) is ExchangeRules

        def went_on(_: None, walk: ExchangeSimulation, *values: Any, **named: Any) -> None:
            self.totals["steps"] += type(walk.rules) is ExchangeRules

        def searched(explored: Explored, model: Any, **named: Any) -> None:
            if isinstance(model, Configuration) and model.rules is ExchangeRules and model.believed is None:
                self.totals.update(searches=1, states=explored.states)

        report_after(Simulation, "run", ran)
        report_after(ExchangeSimulation, "__init__", began)
        report_after(ExchangeSimulation, "decide", went_on)
        report_after(model_checker, "explore", searched)

    def count_case(self) -> None:
        """Note that a case of a property held."""
        self.totals["cases"] += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        test = getattr(item, "obj", None)
        if not hasattr(test, "hypothesis"):
            return (yield)
        with counted(test, self.count_case):
            return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        worker_output(session.config)["figures"] = dict(self.totals)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.totals.update(output_of(node).get("figures", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("figures")
        for name, line in LINES.items():
            terminalreporter.write_line(f"{self.totals[name]:>11,} {line}")
