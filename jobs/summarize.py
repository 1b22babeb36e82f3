"""Entry point for `ray job submit --working-dir . -- python jobs/summarize.py INPUT OUTPUT ...`.

It is `raydiff summarize` on the job's cluster: same arguments, same exit status. OUTPUT must be
s3:// or an absolute path; on several nodes one that all mount, with --shared-filesystem.
"""

from __future__ import annotations

import sys

from raydiff.cli import main

if __name__ == "__main__":
    sys.exit(main(["summarize", *sys.argv[1:]]))
