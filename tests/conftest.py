"""How hard Hypothesis searches: moderately by default, more and repeatably in CI, for as long as one likes when soaking.

No profile has a deadline: how long one example takes says more about the machine than about the code. ``--soak-seconds``
says how long each soak test goes on; how many cases each has covered stands at the end of the run.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=60, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "default")

COVERED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seconds", type=float, metavar="N", help="how long each soak test of a property goes on (20)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COVERED] = []
    if config.getoption("--soak-seconds") is not None:
        settings.load_profile("soak")  # before any test is imported


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[COVERED]:
        terminalreporter.section("random cases covered")
        for line in config.stash[COVERED]:
            terminalreporter.write_line(line)


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that runs a property, with the arguments that Hypothesis does not make, until the time is up.

    What runs when the time is up is finished: a pass of so many cases as the profile says.
    """

    def run(prop: Any, **arguments: Any) -> None:
        case, cases = prop.hypothesis.inner_test, 0

        @functools.wraps(case)
        def counted(*values: Any, **named: Any) -> None:
            nonlocal cases
            case(*values, **named)
            cases += 1

        prop.hypothesis.inner_test = counted
        end = time.monotonic() + (request.config.getoption("--soak-seconds") or 20.0)
        try:
            while time.monotonic() < end:
                prop(**arguments)
        finally:
            prop.hypothesis.inner_test = case
            request.config.stash[COVERED].append(f"{cases:>9,} {request.node.name}")

    return run
