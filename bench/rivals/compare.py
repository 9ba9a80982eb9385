#!/usr/bin/env python3
"""Times RLX and its rivals in turn, in one run, and prints medians and ratios.

    compare.py build/release/bin/rlx-bench

Rivals: JAX (the digits training step and its compile time) and NumPy's OpenBLAS (f32 matrix
products). One thread each, unless --threads 2. Needs the packages of tests/oracle/requirements.txt.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("bench")
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--threads", type=int, default=1, choices=(1, 2))
options = parser.parse_args()
cpus = set(list(os.sched_getaffinity(0))[: options.threads])
os.sched_setaffinity(0, cpus)
os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)

import jax  # noqa: E402  (after the settings)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402


def classify(w, x):
    def conv(x, k, b):
        y = lax.conv_general_dilated(x, k, (1, 1), ((1, 1), (1, 1)),
                                     dimension_numbers=("NCHW", "OIHW", "NCHW"))
        return jax.nn.relu(y + b)
    x = conv(x, w["c1"], w["b1"])
    x = conv(x, w["c2"], w["b2"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ w["d1"] + w["e1"])
    return x @ w["d2"] + w["e2"]


def loss(w, x, y):
    z = jax.nn.log_softmax(classify(w, x))
    return -jnp.mean(jnp.take_along_axis(z, y[:, None], 1))


def step(w, m, x, y, rate):
    value, g = jax.value_and_grad(loss)(w, x, y)
    m = jax.tree.map(lambda m, g, w: 0.9 * m + g + 5e-4 * w, m, g, w)
    return jax.tree.map(lambda w, m: w - rate * m, w, m), m, value


def jax_state():
    rng = np.random.default_rng(0)
    shapes = {"c1": (16, 1, 3, 3), "b1": (16, 1, 1), "c2": (32, 16, 3, 3), "b2": (32, 1, 1),
              "d1": (512, 64), "e1": (64,), "d2": (64, 10), "e2": (10,)}
    w = {k: jnp.asarray(rng.normal(0, 0.1, s), jnp.float32) for k, s in shapes.items()}
    m = jax.tree.map(jnp.zeros_like, w)
    x = jnp.asarray(rng.random((32, 1, 8, 8)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 10, 32))
    return w, m, x, y


def rlx(name, counter="real_time"):
    out = subprocess.run([options.bench, f"--benchmark_filter={name}", "--benchmark_format=json",
                          "--benchmark_min_time=0.2"], capture_output=True, text=True, check=True)
    rows = json.loads(out.stdout)["benchmarks"]
    if not rows:
        sys.exit(f"no benchmark matches {name}")
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[rows[0]["time_unit"]]
    return rows[0][counter] * scale


def main():
    w, m, x, y = jax_state()
    started = time.perf_counter()
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(w, m, x, y, 0.05).compile()
    jax_compile = time.perf_counter() - started
    a = np.random.default_rng(0).random((1024, 1024), np.float32)
    c = np.empty_like(a)
    times = {"step": [], "jax": [], "gemm": [], "blas": [], "compile": []}
    for _ in range(options.rounds):
        times["step"].append(rlx(f"training_step/batch:32/threads:{options.threads}"))
        ts = []
        for _ in range(200):
            t = time.perf_counter()
            w, m, value = compiled(w, m, x, y, 0.05)
            value.block_until_ready()
            ts.append(time.perf_counter() - t)
        times["jax"].append(statistics.median(ts))
        times["compile"].append(rlx("training_compile/verify:0"))
        ts = []
        for _ in range(15):
            t = time.perf_counter()
            np.matmul(a, a, out=c)
            ts.append(time.perf_counter() - t)
        times["blas"].append(statistics.median(ts))
    med = {k: statistics.median(v) for k, v in times.items() if v}
    pairs = [j / r for j, r in zip(times["jax"], times["step"])]
    print(f"threads {options.threads}, {options.rounds} rounds")
    print(f"training step: RLX {med['step'] * 1e3:.3f} ms, JAX {med['jax'] * 1e3:.3f} ms, "
          f"JAX/RLX {statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})")
    print(f"compiling it:  RLX {med['compile'] * 1e3:.2f} ms, JAX {jax_compile * 1e3:.0f} ms once")
    print(f"OpenBLAS f32 1024: {2 * 1024**3 / med['blas'] / 1e9:.0f} GF/s")


main()
