from timely.methods import ScopeMethods as ScopeMethods
from timely.methods import StreamMethods as StreamMethods
