"""``python -m timely.cli``: the ``timely`` command, for where its script is not on the path."""

import sys

from timely.cli import main

if __name__ == "__main__":
    sys.exit(main())
