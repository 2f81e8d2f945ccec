"""``python -m timely.cli``: the ``timely`` command."""

import sys

from timely.cli import main

if __name__ == "__main__":
    sys.exit(main())
