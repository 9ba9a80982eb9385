"""Numbers from counters."""
import numpy as np

from .registry import NUMPY, oracle


def philox_blocks(seed, key, count, first=0):
    """NumPy has Philox 4x64; the 4x32 variant is written out from the paper's definition."""
    c = np.zeros((count, 4), np.uint64)
    i = np.arange(count, dtype=np.uint64) + np.uint64(first)
    c[:, 0], c[:, 1] = i & 0xFFFFFFFF, i >> np.uint64(32)
    c[:, 2], c[:, 3] = key & 0xFFFFFFFF, key >> 32
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c[:, 0] * np.uint64(0xD2511F53), c[:, 2] * np.uint64(0xCD9E8D57)
        n = np.empty_like(c)
        n[:, 0] = (p1 >> np.uint64(32)) ^ c[:, 1] ^ np.uint64(k0)
        n[:, 1] = p1 & low
        n[:, 2] = (p0 >> np.uint64(32)) ^ c[:, 3] ^ np.uint64(k1)
        n[:, 3] = p0 & low
        c = n
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def uniforms(dtype, seed, key, n):
    if dtype == "f64":
        c = philox_blocks(seed, key, (n + 1) // 2)
        words = (c[:, 0::2] | (c[:, 1::2] << np.uint64(32))).reshape(-1)[:n]
        return (words >> np.uint64(11)) * 2.0**-53
    c = philox_blocks(seed, key, (n + 3) // 4).reshape(-1)[:n]
    bits = {"f32": 24, "f16": 11, "bf16": 8}[dtype]
    return (c >> np.uint64(32 - bits)).astype(np.float64) * 2.0**-bits


def seeds_of(x):
    if not x:
        return (), [0]
    return x[0].a.shape, [int(v) for v in x[0].a.reshape(-1)]


@oracle("RngUniform")
def rng_uniform(at, x):
    lead, seeds = seeds_of(x)
    n = int(np.prod(at["shape"], dtype=np.int64))
    out = []
    for s in seeds:
        wide = np.float64 if at["dtype"] == "f64" else np.float32  # two roundings, as documented
        u = uniforms(at["dtype"], s, at["key"] % 2**64, n).astype(wide)
        u = wide(at["low"]) + u * wide(at["high"] - at["low"])
        r = u.astype(NUMPY[at["dtype"]])
        high = np.array(at["high"]).astype(NUMPY[at["dtype"]])
        if at["high"] > at["low"]:  # the interval is half open after rounding too
            r = np.where(r >= high, np.nextafter(high, np.array(-np.inf, high.dtype)), r)
        out.append(r.astype(np.float64))
    return [np.reshape(out, lead + tuple(at["shape"]))]


@oracle("RngNormal")
def rng_normal(at, x):
    lead, seeds = seeds_of(x)
    n = int(np.prod(at["shape"], dtype=np.int64))
    out = []
    for s in seeds:
        key = at["key"] % 2**64
        if at["dtype"] == "f64":
            c = philox_blocks(s, key, (n + 1) // 2)
            w = (c[:, 0::2] | (c[:, 1::2] << np.uint64(32))) >> np.uint64(11)
            u1, u2 = (w[:, 0] + 1.0) * 2.0**-53, w[:, 1] * 2.0**-53
        else:
            c = philox_blocks(s, key, (n + 3) // 4).reshape(-1, 2)
            w = c >> np.uint64(8)
            u1, u2 = (w[:, 0] + 1.0) * 2.0**-24, w[:, 1] * 2.0**-24
        r = np.sqrt(-2 * np.log(u1))
        z = np.stack([r * np.cos(2 * np.pi * u2), r * np.sin(2 * np.pi * u2)], 1).reshape(-1)[:n]
        out.append(at["mean"] + at["scale"] * z)
    return [np.reshape(out, lead + tuple(at["shape"]))]


@oracle("RngFold")
def rng_fold(at, x):
    seed, index = np.broadcast_arrays(x[0].a, x[1].a)
    out = np.empty(seed.shape, np.uint64)
    for i in np.ndindex(out.shape):
        word = int(index[i]) & (2**64 - 1)
        c = philox_blocks(int(seed[i]), 0x464F4C44, 1, first=word)[0]
        out[i] = c[0] | (c[1] << np.uint64(32))
    return [out]
