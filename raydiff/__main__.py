"""`python -m raydiff`."""

import sys

from raydiff.cli import main

sys.exit(main())
