"""What the runtime asks of a transport, and how one is chosen.

A transport is a file in ``hpcoll/transports``; its name is the file's stem, known without
importing it. The file has a function ``open_channel`` and one ``unavailable``.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpcoll.errors import ConfigError, TransportUnavailable
from hpcoll.runtime.heap import Heap


class Channel(Protocol):
    """A transport opened on one communicator.

    Attributes
    ----------
    name : str
        Name of the transport.
    message_limit : int
        Largest message, in bytes.
    table : ndarray of int64
        The channel words of the engine: function pointers, handles, tag layout.
    heap : Heap or None
        Where this rank makes arrays that others read without a copy.
    """

    name: str
    message_limit: int
    table: NDArray[np.int64]
    heap: Heap | None

    def reserve(self, requests: int) -> None:
        """Make room for runs with as many messages at once."""

    def send(self, buffer: NDArray[np.uint8], peer: int, tag: int) -> Any:
        """Post a send; return a request."""

    def recv(self, buffer: NDArray[np.uint8], peer: int, tag: int) -> Any:
        """Post a receive; return a request."""

    def native(self, function: int, arguments: list[int]) -> Any:
        """Post a native collective; return a request."""

    def test_all(self, requests: list[Any]) -> bool:
        """Whether all requests are complete."""

    def pending(self, addresses: list[int]) -> list[bool]:
        """For each posted request of the compiled engine, whether it is incomplete."""

    def explain_error(self, code: int) -> tuple[str, list[int]]:
        """The library's text for an error code, and the ranks known to have died."""

    def dead_peers(self) -> list[int]:
        """The ranks that the transport knows to have died."""

    def native_rows(self) -> Any:
        """What lowers native collectives on this channel; None where there are none."""

    def close(self) -> None:
        """Free what the channel holds."""


def transport_names() -> list[str]:
    """The transports there are, without importing them."""
    package = importlib.import_module("hpcoll.transports")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__))


def load_transport(name: str) -> Any:
    """The module of a transport that can be used here.

    Parameters
    ----------
    name : str
        A transport's name.

    Raises
    ------
    ConfigError
        If there is no such transport.
    TransportUnavailable
        If it can't be used here; the message says what it needs.
    """
    if name not in transport_names():
        raise ConfigError(
            f"unknown transport {name!r}: use auto or one of {', '.join(transport_names())}"
        )
    module = importlib.import_module(f"hpcoll.transports.{name}")
    reason = module.unavailable()
    if reason:
        raise TransportUnavailable(f"{name} {reason}")
    return module
