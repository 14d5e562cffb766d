"""Hierarchical: one algorithm inside the nodes, another one between them.

On rails, all ranks of a node carry a share of the message out of it: for large messages.
With leaders, one rank of a node speaks for all: for small ones.
"""

from hpcoll.algorithms import direct, dissemination, pairwise, recursive_doubling, ring, tree
from hpcoll.schedule import Problem, leaders, permuted, rails, register, segmented

RAILS = "BlueConnect: Cho et al. 2019, doi:10.1147/JRD.2019.2947013"
LEADERS = "Karonis et al. 2000, doi:10.1109/IPDPS.2000.846009"
NODE_AWARE = "Traeff, Rougier 2014, doi:10.1145/2642769.2642770"
PIPELINED = "HAN: Luo et al. 2020, doi:10.1109/CLUSTER49012.2020.00013"


def by_node(p: Problem) -> list[int]:
    """The ranks of one node after those of another."""
    return [rank for node in p.nodes for rank in node]


register(
    rails("allreduce", intra=(direct.reduce_scatter, direct.allgather), inter=ring.allreduce),
    name="hierarchical",
    source=RAILS,
    doc="Reduce_scatter in the node, a ring between the nodes on every rail, allgather.",
)
register(
    rails("reduce_scatter", intra=direct.reduce_scatter, inter=ring.reduce_scatter),
    name="hierarchical",
    source=RAILS,
    doc="Reduce_scatter in the node, then between the nodes on every rail.",
)
register(
    rails("allgather", intra=direct.allgather, inter=ring.allgather),
    name="hierarchical",
    source=RAILS,
    doc="Allgather between the nodes on every rail, then in the node.",
)
register(
    rails("broadcast", intra=(tree.scatter, direct.allgather), inter=tree.broadcast),
    name="hierarchical",
    source=RAILS,
    doc="Scatter in the root's node, a binomial tree on every rail, allgather in the nodes.",
)
register(
    rails("alltoall", intra=pairwise.alltoall, inter=pairwise.alltoall),
    name="hierarchical",
    source=NODE_AWARE,
    doc="A neighbour gets what its rail carries; then one message to each other node.",
)

tree_leaders = leaders(
    "allreduce",
    reduce=tree.reduce,
    inter=recursive_doubling.allreduce,
    broadcast=tree.broadcast,
)
register(
    tree_leaders,
    name="leaders",
    source=LEADERS,
    doc="A tree to the leader of each node, recursive doubling between them, and a tree back.",
)
register(
    segmented(tree_leaders),
    name="pipelined_leaders",
    source=PIPELINED,
    doc="As leaders, in segments: one is reduced in the nodes while another is between them.",
)
register(
    leaders("broadcast", inter=tree.broadcast, broadcast=tree.broadcast),
    name="leaders",
    source=LEADERS,
    doc="A binomial tree over one rank of each node, then one in each node.",
)
register(
    leaders("reduce", reduce=tree.reduce, inter=tree.reduce),
    name="leaders",
    source=LEADERS,
    doc="A binomial tree in each node, then one over one rank of each.",
)
register(
    leaders("barrier", reduce=tree.reduce, inter=dissemination.barrier, broadcast=tree.broadcast),
    name="leaders",
    source=LEADERS,
    doc="The leader of each node hears of all its ranks, meets the others, and tells them.",
)

for flat in (ring.allreduce, ring.reduce_scatter, ring.allgather):
    register(
        permuted(flat, by_node),
        name="node_ring",
        doc="A ring that leaves each node once, wherever the ranks lie.",
    )
