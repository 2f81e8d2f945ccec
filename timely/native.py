"""What a class says to the compiler that can make a native one of it; to the interpreter it says nothing.

The engine is compiled by mypyc where that was asked for when the package was built, from the same source
(``docs/decisions/engine.md``). A native class cannot be derived from by an interpreted one, unless it says that it can:
``@mypyc_attr(allow_interpreted_subclasses=True)``. The compiler reads that and does not run it, so that the package where that
decorator comes from is not needed when the program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return a decorator that leaves its class as it is."""
        return lambda cls: cls
