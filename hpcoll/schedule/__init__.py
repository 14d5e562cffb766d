"""Schedules: written, proved and counted with the standard library only.

What an algorithm file needs is here: ``from hpcoll.schedule import algorithm, send, recv``.
"""

from hpcoll.schedule.algorithm import Algorithm
from hpcoll.schedule.combinators import mirrored, permuted, reversed_, segmented, sequence
from hpcoll.schedule.hierarchy import leaders, rails
from hpcoll.schedule.operations import (
    copy,
    fold,
    incoming,
    recv,
    recv_reduce,
    send,
    src,
    tmp,
)
from hpcoll.schedule.parts import part
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.registry import algorithm, register

__all__ = [
    "Algorithm",
    "Problem",
    "algorithm",
    "copy",
    "fold",
    "incoming",
    "leaders",
    "mirrored",
    "part",
    "permuted",
    "rails",
    "recv",
    "recv_reduce",
    "register",
    "reversed_",
    "segmented",
    "send",
    "sequence",
    "src",
    "tmp",
]
