"""Bench every collective at one small size, in this job; ends with 1 if an element is wrong."""

import sys

from hpcoll.bench.driver import Bench
from hpcoll.bench.options import BenchOptions
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS

DTYPES = ("float32", "float16", "bfloat16", "int8", "complex64", "bool")

status = 0
for i, name in enumerate([*COLLECTIVES, *VECTOR_FORMS]):
    base = COLLECTIVES[VECTOR_FORMS.get(name, name)]
    for in_place, symmetric in ((False, False), (True, False), (True, True)):
        if in_place and (name == "barrier" or name in VECTOR_FORMS):
            continue
        options = BenchOptions(
            name,
            sizes=(0,) if name == "barrier" else (3072,),
            dtype=DTYPES[i % len(DTYPES)],
            op="sum" if base.reduces else "none",
            versus="mpi",
            transport="shm" if symmetric else "auto",
            in_place=in_place,
            symmetric=symmetric,
            root=1 if base.rooted else 0,
            iterations=4,
            warmup=1,
        )
        status |= Bench(options).run()
sys.exit(status)
