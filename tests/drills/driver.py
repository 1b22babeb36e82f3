"""One start of a run: `python -m tests.drills.driver SPEC`, on the cluster in RAY_ADDRESS."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import ray

from raydiff.cli.corpus_run import Options, run_corpus
from raydiff.config import CorpusSettings
from raydiff.errors import RaydiffError
from raydiff.request import Decoding

INTERRUPTED, COULD_NOT_RUN = 130, 3


def main(spec_file: str) -> int:
    """Run it as the command would; its exit status."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    spec = json.loads(Path(spec_file).read_text())
    hook = spec["worker_hook"]
    ray.init(
        address=os.environ["RAY_ADDRESS"],
        runtime_env={"worker_process_setup_hook": hook} if hook else None,
        logging_level=logging.ERROR,
    )
    try:
        settings = CorpusSettings(**spec["settings"])
        return run_corpus(settings, Decoding(**spec["decoding"]), Options(as_json=True))
    except KeyboardInterrupt:
        return INTERRUPTED
    except RaydiffError as error:
        print(f"raydiff: {error}", file=sys.stderr)
        return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
