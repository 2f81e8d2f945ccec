"""Where a peer runs: a virtual environment with one package of one version in it, made when it is first asked for, and kept.

They are in the user's cache (``XDG_CACHE_HOME``, or else ``~/.cache``), in ``timely-benchmarks``, and may be deleted at any time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "timely-benchmarks"

PATIENCE = 900
"""Seconds that pip may take."""


class Unavailable(Exception):
    """A package cannot be installed here; says why."""


def python_with(*requirements: str) -> str:
    """Return the path of a Python that has these requirements (``"name==version"``) installed, and nothing of ours.

    ``Unavailable`` where pip cannot install it: for this version of Python, on this machine, or for want of a network.
    """
    requirement = " ".join(requirements)
    folder = CACHE / f"{requirement.replace('==', '-').replace(' ', '+')}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"making an environment with {requirement} in {folder}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, symlinks=True)
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        *requirements,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip took more than {PATIENCE} s to install {requirement}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise Unavailable(f"{requirement}: {said[-1].removeprefix('ERROR: ')}")
    (folder / "ready").touch()
    return str(python)
