"""All functions of SQL that there are: by their nodes of sqlglot, or by name."""

from __future__ import annotations

from typing import Any, Final

from timely.differential.tables.values.list_functions import LIST_FUNCTIONS, NAMED_LIST_FUNCTIONS
from timely.differential.tables.values.moment_functions import MOMENT_FUNCTIONS, NAMED_MOMENT_FUNCTIONS
from timely.differential.tables.values.number_functions import NAMED_NUMBER_FUNCTIONS, NUMBER_FUNCTIONS
from timely.differential.tables.values.overloads import Rule, SqlFunction
from timely.differential.tables.values.text_functions import NAMED_TEXT_FUNCTIONS, TEXT_FUNCTIONS

FUNCTIONS: Final[dict[Any, SqlFunction]] = {**TEXT_FUNCTIONS, **NUMBER_FUNCTIONS, **MOMENT_FUNCTIONS, **LIST_FUNCTIONS}

NAMED_FUNCTIONS: Final[dict[str, tuple[Rule, ...]]] = {
    **NAMED_TEXT_FUNCTIONS,
    **NAMED_NUMBER_FUNCTIONS,
    **NAMED_MOMENT_FUNCTIONS,
    **NAMED_LIST_FUNCTIONS,
}
