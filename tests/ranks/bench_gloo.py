"""Bench against gloo every collective that it has, in this job; 1 if an element is wrong."""

import sys

from hpcoll.bench.driver import Bench
from hpcoll.bench.gloo import COLLECTIVES
from hpcoll.bench.options import BenchOptions
from hpcoll.schedule.collectives import collective_named

DTYPES = ("float32", "bfloat16", "int8", "float64", "int32")

status = 0
for i, name in enumerate(COLLECTIVES):
    base = collective_named(name)
    for in_place in (False, True):
        if in_place and name in ("barrier", "alltoallv"):
            continue
        options = BenchOptions(
            name,
            sizes=(0,) if name == "barrier" else (0, 3072),
            dtype=DTYPES[i % len(DTYPES)],
            op="sum" if base.reduces else "none",
            versus="gloo",
            in_place=in_place,
            root=1 if base.rooted else 0,
            iterations=4,
            warmup=1,
        )
        status |= Bench(options).run()
sys.exit(status)
