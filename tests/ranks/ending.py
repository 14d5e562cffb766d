"""One rank ends or dies in some way while the others do something.

Arguments: how the last rank ends, and what the others do meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
from common import noted, rank_and_size, say, until, wait_flag

import hpcoll

HOW, MEANWHILE = sys.argv[1:3]
RANK, SIZE = rank_and_size()
LAST = SIZE - 1
X = np.ones(4 * SIZE, np.float32)


def own_hook(kind: type[BaseException], value: BaseException, trace: Any) -> None:
    """A hook of the program's own, which must run as well."""
    print(f"the program's own hook saw {kind.__name__}", file=sys.stderr, flush=True)
    sys.__excepthook__(kind, value, trace)


def end() -> None:
    """End as asked."""
    if HOW == "raise":
        raise RuntimeError("deliberate")
    if HOW == "exit":
        sys.exit(3)
    if HOW == "builtin-exit":
        exit(3)
    if HOW == "message":
        sys.exit("a message and status 1")
    if HOW == "caught":
        try:
            sys.exit(3)
        except SystemExit:
            say("caught")
    if HOW == "zero":
        sys.exit(0)
    if HOW == "forked":
        child = os.fork()
        if child == 0:
            with noted("child"):
                hpcoll_comm.allreduce(X)
            os._exit(5)
        say("child-status", status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if HOW == "wait":
        wait_flag("never")
    if HOW == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)


def meanwhile() -> None:
    """What the other ranks do: some of it never ends by itself."""
    if MEANWHILE == "collective":
        hpcoll_comm.allreduce(X, algorithm="ring")
    elif MEANWHILE == "agreeing":
        hpcoll_comm.allreduce(X, algorithm="ring", op="max")
    elif MEANWHILE == "compute":
        until(lambda: False, 40)
    elif MEANWHILE == "native":
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()


if HOW == "raise":
    sys.excepthook = own_hook
if RANK == LAST and HOW == "settings":
    os.environ["HPCOLL_TIMEOUT_S"] = "never"
if RANK == LAST and HOW == "transport":
    os.environ["HPCOLL_TRANSPORT"] = "carrier_pigeon"
hpcoll_comm = hpcoll.Communicator()
hpcoll_comm.allreduce(X, algorithm="ring")
say("ready")
if RANK == LAST:
    time.sleep(0.2)
    say("ending")
    end()
else:
    try:
        meanwhile()
    except hpcoll.errors.HpcollError as error:
        say("error", kind=type(error).__name__, text=str(error))
        if HOW != "sigkill":
            raise
    except KeyboardInterrupt:
        say("interrupted")
        raise
say("end")
