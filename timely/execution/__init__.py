"""``execute``: run a program on several workers, in threads, in processes, or on several machines."""

from timely.execution.running import example, execute

__all__ = ["example", "execute"]
