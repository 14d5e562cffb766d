"""The MPI library's own collectives: runnable and selectable like the others, unproved."""

from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.registry import add_native

for collective in COLLECTIVES:
    add_native(collective)
