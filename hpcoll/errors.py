"""Every error that hpcoll raises on purpose.

They share one base and one message format, so that a log line alone says where
the fault is: ``rank 3/8 allreduce/ring step 5: waited 30 s for rank 2``.
"""


class HpcollError(Exception):
    """Base of all errors of hpcoll."""


class ConfigError(HpcollError, ValueError):
    """A setting, an option or an argument has a value that can't be used."""


class RegistryError(HpcollError, LookupError):
    """No algorithm of that name, two of them, or one that doesn't fit the call."""


class ScheduleError(HpcollError, ValueError):
    """An algorithm produced a schedule that is wrong."""


class BufferMismatch(HpcollError, TypeError):
    """An array can't be used for this call: shape, dtype, layout or access."""


class MismatchError(HpcollError):
    """The ranks disagree about which call this is."""


class TransportError(HpcollError, OSError):
    """The data path failed, or the communicator can't be used any more."""


class TransportUnavailable(TransportError):
    """A transport was asked for by name and can't be used here."""


class PeerFailure(TransportError):
    """Another rank died."""


class CollectiveTimeout(HpcollError, TimeoutError):
    """A collective waited longer than its time limit."""
