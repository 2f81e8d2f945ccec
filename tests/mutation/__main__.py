"""``python -m tests.mutation [MODULE...]``: runs mutmut (``[tool.mutmut]`` in pyproject.toml) and prints unexplained survivors.

``explained.toml`` lists the survivors that no test can tell from the original, by module, function and line, with the reason.
The status is 1 if another mutant survives. mutmut works in ``mutants/``, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXPLAINED = Path(__file__).with_name("explained.toml")


def mutmut(*arguments: str) -> str:
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def explained() -> set[tuple[str, str, str]]:
    """Return (module, function, line) of each explained survivor; says which of them the code no longer has."""
    lines = set()
    for entry in tomllib.loads(EXPLAINED.read_text())["mutant"]:
        module = ROOT / entry["module"]
        if not module.exists() or entry["line"] not in map(str.strip, module.read_text().splitlines()):
            print(f"explained.toml: {entry['module']} no longer has the line {entry['line']!r}")
        lines.add((entry["module"], entry["function"], entry["line"]))
    return lines


def place(name: str, diff: str) -> tuple[str, str, str]:
    """Return module, function and line of a mutant from its name and the diff that ``mutmut show`` prints."""
    module, _, function = name.rpartition("__mutmut_")[0].rpartition(".")
    function = function.removeprefix("xǁ").removeprefix("x_").replace("ǁ", ".")
    line = next(line[1:].strip() for line in diff.splitlines() if line.startswith("-") and not line.startswith("---"))
    return module.replace(".", "/") + ".py", function, line


def main(modules: list[str]) -> int:
    subprocess.run([sys.executable, "-m", "mutmut", "run", *(f"{module}*" for module in modules)], cwd=ROOT, check=True)
    known = explained()
    status = 0
    for name, _, outcome in (line.strip().partition(": ") for line in mutmut("results").splitlines()):
        if outcome == "survived":
            diff = mutmut("show", name)
            if place(name, diff) not in known:
                print(diff)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
