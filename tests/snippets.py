"""``python -m tests.snippets``: mypy --strict reads every program of the documents.

What the programs leave out on purpose is allowed: annotations of functions and of empty containers. ``--pyright PROGRAM`` has
pyright read them too. Prints what is wrong with page and line, and ends with a status of 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mypy import api

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(root: Path) -> dict[str, str]:
    """Return the programs of all documents by the names of their files, each on the lines that it has in its page."""
    texts = {}
    for page in sorted([root / "README.md", *(root / "docs").rglob("*.md")]):
        text = page.read_text(encoding="utf-8")
        for program in PROGRAM.finditer(text):
            line = text.count("\n", 0, program.start(1))
            name = re.sub(r"\W", "_", page.relative_to(root).with_suffix("").as_posix())
            texts[f"{name}__{line}.py"] = "\n" * line + program[1]
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.snippets", description=__doc__)
    parser.add_argument("--pyright", metavar="PROGRAM", help="pyright's command, to be run as well")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "pages")  # their package: pyproject.toml says what they may leave out
        folder.mkdir()
        for name, source in programs(ROOT).items():
            (folder / name).write_text(source, encoding="utf-8")
        os.environ["MYPYPATH"] = around
        report, trouble, status = api.run(["--strict", "--no-error-summary", *map(str, sorted(folder.glob("*.py")))])
        print(re.sub(r"^\S*/pages/", "", report, flags=re.MULTILINE) + trouble, end="")
        if chosen.pyright is not None:
            settings = {
                "include": ["."],
                "extraPaths": [str(ROOT)],
                "typeCheckingMode": "standard",
                "reportAttributeAccessIssue": "warning",  # PyArrow and ibis make their functions when they are imported
            }
            Path(folder, "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
            command = [chosen.pyright, "--project", folder, "--pythonpath", sys.executable]
            status |= subprocess.run(command, cwd=folder, check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
