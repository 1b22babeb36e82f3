"""Entry point for `ray job submit --working-dir . -- python jobs/summarize.py INPUT OUTPUT ...`.

It is `raydiff summarize` under the job's cluster: same arguments, same exit status. OUTPUT must be
an absolute path that the cluster's nodes share.
"""

from __future__ import annotations

import sys

from raydiff.cli import main

if __name__ == "__main__":
    sys.exit(main(["summarize", *sys.argv[1:]]))
