"""How hard Hypothesis searches: moderately by default, more and repeatably in CI, for as long as one likes when soaking.

No profile has a deadline: how long one example takes says more about the machine than about the code. ``--soak-seconds``
says how long each soak test goes on; how many cases it covered stands at the end of the run.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=60, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "default")
