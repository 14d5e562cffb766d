"""Schedules: written, proved and counted with the standard library only.

What an algorithm file needs is here: ``from hpcoll.schedule import algorithm, send, recv``.
"""

from hpcoll.schedule.algorithm import Algorithm, part
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
from hpcoll.schedule.problem import Problem
from hpcoll.schedule.registry import algorithm

__all__ = [
    "Algorithm",
    "Problem",
    "algorithm",
    "copy",
    "fold",
    "incoming",
    "part",
    "recv",
    "recv_reduce",
    "send",
    "src",
    "tmp",
]
