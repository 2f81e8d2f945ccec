from typing import TypeAlias

from timely.methods import ScopeMethods, StreamMethods

ScopeBase: TypeAlias = ScopeMethods
StreamBase: TypeAlias = StreamMethods
