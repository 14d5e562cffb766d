"""Train a small network on handwritten digits, data-parallel, gradients through hpcoll.

    mpiexec -n 4 python jobs/train_digits.py
    srun -n 4 python jobs/train_digits.py

Every rank takes its share of each batch, and comm.allreduce adds the gradients up, so
that all ranks take the same step: the loss curve is that of one process, but for
rounding. ``--compare`` trains in one process too and holds the two curves together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import hpcoll

Array = NDArray[np.float64]
HIDDEN, CLASSES = 64, 10


class Network:
    """One hidden layer; all parameters in one vector, so that one allreduce serves."""

    def __init__(self, inputs: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shapes = [(inputs, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        sizes = [int(np.prod(s)) for s in shapes]
        self.parameters = np.zeros(sum(sizes))
        self.gradient = np.zeros(sum(sizes))
        cuts = np.cumsum(sizes)[:-1]
        self.w1, self.b1, self.w2, self.b2 = (
            part.reshape(s) for part, s in zip(np.split(self.parameters, cuts), shapes, strict=True)
        )
        self.g = [
            part.reshape(s) for part, s in zip(np.split(self.gradient, cuts), shapes, strict=True)
        ]
        self.w1[...] = rng.normal(0, np.sqrt(2 / inputs), shapes[0])
        self.w2[...] = rng.normal(0, np.sqrt(2 / HIDDEN), shapes[2])

    def scores(self, x: Array) -> tuple[Array, Array]:
        """Hidden layer and class scores."""
        hidden = np.maximum(x @ self.w1 + self.b1, 0)
        return hidden, hidden @ self.w2 + self.b2

    def backward(self, x: Array, y: NDArray[np.int64]) -> float:
        """Put the gradient of the summed loss into `gradient`; return the summed loss."""
        hidden, scores = self.scores(x)
        scores = scores - scores.max(axis=1, keepdims=True)
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        error = np.exp(log_p)
        error[np.arange(len(y)), y] -= 1
        back = (error @ self.w2.T) * (hidden > 0)
        for g, value in zip(
            self.g, (x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)), strict=True
        ):
            g[...] = value
        return float(-log_p[np.arange(len(y)), y].sum())


def train(
    reduce: Callable[[Array], object], rank: int, size: int, epochs: int, batch: int, seed: int
) -> tuple[list[float], float]:
    """Train on this rank's share; return the mean loss of each epoch, and the accuracy."""
    digits = load_digits()
    x, y = digits.data / 16.0, digits.target
    held_out = slice(1500, None)
    network = Network(x.shape[1], seed)
    order = np.random.default_rng(seed + 1)
    losses = []
    for _ in range(epochs):
        shuffled = order.permutation(1500)
        total = np.zeros(1)
        for start in range(0, 1500, batch):
            chosen = shuffled[start : start + batch]
            mine = np.array_split(chosen, size)[rank]
            total += network.backward(x[mine], y[mine])
            reduce(network.gradient)
            network.parameters -= 0.5 / len(chosen) * network.gradient
        reduce(total)
        losses.append(float(total[0]) / 1500)
    _, scores = network.scores(x[held_out])
    return losses, float((scores.argmax(axis=1) == y[held_out]).mean())


def main() -> int:
    """Train, print the loss curve on rank 0, compare if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithm", help="pin an allreduce algorithm, such as ring")
    parser.add_argument("--compare", action="store_true", help="train in one process too")
    parser.add_argument("--json", type=Path, help="write the loss curve to this file")
    args = parser.parse_args()
    with hpcoll.Communicator() as comm:

        def reduce(a: Array) -> None:
            comm.allreduce(a, out=a, algorithm=args.algorithm)

        losses, accuracy = train(reduce, comm.rank, comm.size, args.epochs, args.batch, args.seed)
        if comm.rank > 0:
            return 0
        for epoch, loss in enumerate(losses):
            print(f"epoch {epoch:3d}  loss {loss:.6f}")
        print(f"{comm.size} ranks, accuracy on digits not trained on: {accuracy:.3f}")
        if args.json:
            args.json.write_text(json.dumps({"ranks": comm.size, "losses": losses}))
        if args.compare:
            alone, _ = train(lambda a: None, 0, 1, args.epochs, args.batch, args.seed)
            worst = max(abs(a - b) / b for a, b in zip(losses, alone, strict=True))
            print(f"largest relative difference from one process: {worst:.1e}")
            if worst > 1e-9:
                print("the curves differ by more than rounding", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
