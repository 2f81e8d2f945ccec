"""The table of functions: all scalar functions and operators of SQL, by their names as written."""

from __future__ import annotations

from typing import Final

from timely.differential.tables.values.list_functions import LIST_FUNCTIONS
from timely.differential.tables.values.moment_functions import MOMENT_FUNCTIONS
from timely.differential.tables.values.number_functions import NUMBER_FUNCTIONS
from timely.differential.tables.values.operator_functions import OPERATORS
from timely.differential.tables.values.overloads import SqlFunction
from timely.differential.tables.values.text_functions import TEXT_FUNCTIONS

FUNCTIONS: Final[dict[str, SqlFunction]] = {
    **OPERATORS,
    **TEXT_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **MOMENT_FUNCTIONS,
    **LIST_FUNCTIONS,
}
