"""The radix of an algorithm that deals with ranks by the digits of their numbers."""

from hpcoll.schedule import Problem


def at_least_two(p: Problem, *, radix: int) -> str | None:
    """The reason why there are no such digits."""
    return "radix must be 2 or more" if radix < 2 else None
