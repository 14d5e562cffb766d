"""One rank of a bench that `hpcoll bench` has started: ``python -m hpcoll.bench.rank``."""

from __future__ import annotations

import sys

from hpcoll.bench.driver import Bench, options_from_environment
from hpcoll.errors import HpcollError
from hpcoll.runtime.bootstrap import mpi


def main() -> int:
    """Run the bench; a user's mistake is one line on rank 0, not a traceback on all."""
    try:
        return Bench(options_from_environment()).run()
    except HpcollError as error:
        if mpi().COMM_WORLD.Get_rank() == 0:
            print(f"hpcoll: error: {error}", file=sys.stderr, flush=True)
        mpi().COMM_WORLD.Barrier()
        return 2


if __name__ == "__main__":
    sys.exit(main())
