"""hpcoll: write a collective algorithm, prove it, measure it, and run it at native speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcoll.errors import (
    BufferMismatch,
    CollectiveTimeout,
    ConfigError,
    HpcollError,
    MismatchError,
    PeerFailure,
    RegistryError,
    ScheduleError,
    TransportError,
    TransportUnavailable,
)
from hpcoll.schedule.ops import make_op as op
from hpcoll.schedule.registry import algorithm
from hpcoll.version import __version__

if TYPE_CHECKING:
    from hpcoll.communicator import Communicator
    from hpcoll.runtime.plan import Plan, Request

__all__ = [
    "BufferMismatch",
    "CollectiveTimeout",
    "Communicator",
    "ConfigError",
    "HpcollError",
    "MismatchError",
    "PeerFailure",
    "Plan",
    "RegistryError",
    "Request",
    "ScheduleError",
    "TransportError",
    "TransportUnavailable",
    "__version__",
    "algorithm",
    "op",
]

_LAZY = {
    "Communicator": "hpcoll.communicator",
    "Plan": "hpcoll.runtime.plan",
    "Request": "hpcoll.runtime.plan",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'hpcoll' has no attribute {name!r}")
