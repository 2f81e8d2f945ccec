"""What ``python -m tests.mutation`` compares; the mutants themselves are mutmut's."""

from __future__ import annotations

import tomllib

from tests.mutation.__main__ import EXPLAINED, place


def test_a_mutant_is_placed_by_module_function_and_line() -> None:
    diff = "# name: survived\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n def join():\n-    x = 1\n+    x = 2"
    assert place("timely.order.xǁProductǁjoin__mutmut_2", diff) == ("timely/order.py", "Product.join", "x = 1")
    assert place("timely.order.x_join__mutmut_12", diff) == ("timely/order.py", "join", "x = 1")


def test_every_explanation_has_a_reason_and_is_there_once() -> None:
    entries = [tuple(entry.values()) for entry in tomllib.loads(EXPLAINED.read_text())["mutant"]]
    assert len(set(entries)) == len(entries)
    assert all(len(entry) == 5 and entry[4] for entry in entries)
