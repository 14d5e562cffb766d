"""Scatter-allgather: cut the message up, spread the pieces, and put them together everywhere.

A broadcast of large messages, and backwards a reduce of them: nobody sends all of it
more than about twice.
"""

from hpcoll.algorithms import recursive_halving, ring, tree
from hpcoll.schedule import register, sequence

register(
    sequence("broadcast", tree.scatter, ring.allgather),
    name="scatter_allgather",
    source="van de Geijn: Barnett et al. 1994, doi:10.1109/SHPCC.1994.296665",
    doc="A binomial scatter from the root, then a ring allgather.",
)
register(
    sequence("reduce", recursive_halving.reduce_scatter, tree.gather),
    name="reduce_scatter_gather",
    source="Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1",
    doc="Recursive halving leaves each rank a reduced piece; a binomial gather to the root.",
)
