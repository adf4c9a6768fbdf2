"""`python -m bucketd` is the command `bucketd`."""

import sys

from bucketd.cli import main

if __name__ == "__main__":
    sys.exit(main())
