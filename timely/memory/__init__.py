"""How much memory a worker's process may hold, and temporary files for what exceeds it.

A ``MemoryBudget`` counts what operators hold. A ``Spool`` has containers in memory while the budget allows, and in a temporary
file beyond it. Operators ask for the budget of their process with ``MemoryBudget.current()``. A ``MemoryWatch`` ends a run whose
workers hold more than the budget in all. The invariant: results do not depend on the budget, and no temporary file outlives its
process.
"""

from timely.memory.budget import MemoryBudget
from timely.memory.footprint import Footprint
from timely.memory.limits import bytes_of, control_group_left, memory_limit, return_freed_memory, size_text, system_memory_left
from timely.memory.paged_file import Spool
from timely.memory.watch import Account, MemoryWatch, held_most

__all__ = [
    "Account",
    "Footprint",
    "MemoryBudget",
    "MemoryWatch",
    "Spool",
    "bytes_of",
    "control_group_left",
    "held_most",
    "memory_limit",
    "return_freed_memory",
    "size_text",
    "system_memory_left",
]
