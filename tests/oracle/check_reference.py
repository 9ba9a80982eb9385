#!/usr/bin/env python3
"""Checks the float64 reference against NumPy, SciPy and JAX.

    rlx-conformance export          # writes ./oracle
    check_reference.py oracle       # compares every exported call

Every exported case must be compared: an op without an oracle here, or a case that an oracle cannot
express, counts as a failure.
"""
import json
import pathlib
import sys
import warnings
from fractions import Fraction

import gguf
import gguf.quants
import jax
import numpy as np
import scipy.special as sp

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402  (after the switch to 64 bits)
from jax import lax  # noqa: E402
import ml_dtypes  # noqa: E402

warnings.simplefilter("ignore")

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
NUMPY = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
         "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
         "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "c64": np.complex64, "c128": np.complex128}


# Blocks of packed dtypes are exported as their bytes, which take the place of the last axis.
PACKED = {"q4_0": gguf.GGMLQuantizationType.Q4_0, "q8_0": gguf.GGMLQuantizationType.Q8_0}
BLOCK_BYTES = {"q4_0": 18, "q8_0": 34}


def is_float(t):
    return t in ("f16", "bf16", "f32", "f64")


def is_complex(t):
    return t in ("c64", "c128")


class Tensor:
    """A wide array: f64, c128, or integers in their own type."""

    def __init__(self, raw, spec):
        self.dtype = spec["dtype"]
        shape = tuple(spec["shape"])
        if self.dtype in PACKED:
            shape = (*shape[:-1], shape[-1] // 32 * BLOCK_BYTES[self.dtype])
        n = int(np.prod(shape, dtype=np.int64))
        wide = np.float64 if is_float(self.dtype) else np.complex128 if is_complex(self.dtype) else np.int64
        a = np.frombuffer(raw, dtype=wide, count=n, offset=spec["offset"]).reshape(shape)
        if self.dtype in PACKED:
            a = a.astype(np.uint8)
        elif self.dtype in INTS or self.dtype == "bool":
            a = a.astype(NUMPY[self.dtype])
        self.a = a


ORACLES = {}
SKIP = 1.2345e300  # in an oracle's result: do not compare this element


def oracle(*names):
    def register(f):
        for n in names:
            ORACLES[n] = f
        return f
    return register


# --- elementwise ----------------------------------------------------------------------------------
def int_div(a, b):
    info = np.iinfo(a.dtype)
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    a, b = np.broadcast_arrays(a, b)
    for i in np.ndindex(out.shape):
        x, y = int(a[i]), int(b[i])
        if y == 0:
            q = -1
        else:
            q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        out[i] = np.array(q & (2**info.bits - 1), np.uint64).astype(a.dtype)
    return out


def int_mod(a, b):
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    a, b = np.broadcast_arrays(a, b)
    for i in np.ndindex(out.shape):
        x, y = int(a[i]), int(b[i])
        out[i] = x if y == 0 else (abs(x) % abs(y)) * (-1 if x < 0 else 1)
    return out


def int_pow(a, b):
    bits = np.iinfo(a.dtype).bits
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    a, b = np.broadcast_arrays(a, b)
    for i in np.ndindex(out.shape):
        x, y = int(a[i]), int(b[i])
        if y < 0:
            r = 1 if x == 1 else ((-1) ** (-y) if x == -1 else 0)
        else:
            r = pow(x, y, 2**bits)
        out[i] = np.array(r % 2**bits, np.uint64).astype(a.dtype)
    return out


def shift(a, b, left):
    bits = np.iinfo(a.dtype).bits
    count = b.astype(np.uint64) if b.dtype.kind == "u" else b.view(b.dtype.str.replace("i", "u")).astype(np.uint64)
    big = count >= bits
    safe = np.where(big, 0, count).astype(a.dtype)
    r = np.left_shift(a, safe) if left else np.right_shift(a, safe)
    fill = np.zeros_like(r) if left or a.dtype.kind == "u" else np.where(a < 0, -1, 0).astype(a.dtype)
    return np.where(big, fill, r)


@oracle("Binary")
def binary(at, x):
    a, b = x[0].a, x[1].a
    kind = at["kind"]
    integer = a.dtype.kind in "iu"
    if kind in ("Add", "Sub", "Mul"):
        return [{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[kind](a, b)]
    if kind == "Div":
        return [int_div(a, b) if integer else np.divide(a, b)]
    if kind == "Mod":
        return [int_mod(a, b) if integer else np.fmod(a, b)]
    if kind == "Pow":
        return [int_pow(a, b) if integer else np.power(a, b)]
    if kind in ("Shl", "Shr"):
        return [shift(a, b, kind == "Shl")]
    return [{"Max": np.maximum, "Min": np.minimum, "BitAnd": np.bitwise_and,
             "BitOr": np.bitwise_or, "BitXor": np.bitwise_xor, "Atan2": np.arctan2}[kind](a, b)]


@oracle("Compare")
def compare(at, x):
    f = {"Eq": np.equal, "Ne": np.not_equal, "Lt": np.less, "Le": np.less_equal,
         "Gt": np.greater, "Ge": np.greater_equal}[at["kind"]]
    return [f(x[0].a, x[1].a)]


@oracle("Where")
def where(at, x):
    return [np.where(x[0].a, x[1].a, x[2].a)]


def silu(x):
    with np.errstate(all="ignore"):
        return np.where(x == -np.inf, -0.0, x * sp.expit(x))


def gelu(x):
    return np.where(x == -np.inf, -0.0, x * sp.ndtr(x))


def gelu_tanh(x):
    # x * sigmoid(2u) has no cancellation at large negative x.
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return np.where(x == -np.inf, -0.0, x * sp.expit(2 * u))


def mish(x):
    return np.where(x == -np.inf, -0.0, x * np.tanh(np.logaddexp(0, x)))


ACTIVATION = {
    "Gelu": gelu, "GeluApprox": gelu_tanh, "Silu": silu,
    "Relu": lambda x: np.maximum(x, 0), "Sigmoid": sp.expit, "Tanh": np.tanh, "Exp": np.exp,
    "Log": np.log, "Sqrt": np.sqrt, "Rsqrt": lambda x: 1 / np.sqrt(x), "Neg": np.negative,
    "Abs": np.abs, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Atan": np.arctan,
    "Recip": lambda x: 1 / x, "Round": np.rint, "Floor": np.floor, "Ceil": np.ceil,
    "Sign": np.sign, "Softplus": lambda x: np.logaddexp(0, x),
    "Elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), "Erf": sp.erf,
    "HardSwish": lambda x: np.where(x <= -3, 0, np.where(x >= 3, x, x * (x + 3) / 6)) + 0 * np.where(np.isnan(x), x, 0),
    "HardSigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1), "Mish": mish,
    "Softsign": lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))),
    "LogSigmoid": sp.log_expit,
}
# Derivatives by JAX where JAX has the function; formulas are not repeated here.
JAX_ACTIVATION = {
    "Gelu": lambda x: jax.nn.gelu(x, approximate=False), "GeluApprox": jax.nn.gelu,
    "Silu": jax.nn.silu, "Relu": jax.nn.relu, "Sigmoid": jax.nn.sigmoid, "Tanh": jnp.tanh,
    "Exp": jnp.exp, "Log": jnp.log, "Sqrt": jnp.sqrt, "Rsqrt": lax.rsqrt, "Neg": jnp.negative,
    "Abs": jnp.abs, "Sin": jnp.sin, "Cos": jnp.cos, "Tan": jnp.tan, "Atan": jnp.arctan,
    "Recip": lambda x: 1 / x, "Round": jnp.round, "Floor": jnp.floor, "Ceil": jnp.ceil,
    "Sign": jnp.sign, "Softplus": jax.nn.softplus, "Elu": jax.nn.elu, "Erf": lax.erf,
    "HardSwish": jax.nn.hard_swish, "HardSigmoid": jax.nn.hard_sigmoid, "Mish": jax.nn.mish,
    "Softsign": jax.nn.soft_sign, "LogSigmoid": jax.nn.log_sigmoid,
}


@oracle("Activation")
def activation(at, x):
    a = x[0].a
    if a.dtype.kind in "iu" and at["kind"] in ("Round", "Floor", "Ceil"):
        return [a]
    return [ACTIVATION[at["kind"]](a)]


@oracle("ActivationBackward")
def activation_backward(at, x):
    a, dy = x[0].a, x[1].a
    if at["straight_through"] and at["kind"] == "Round":
        return [dy]
    f = JAX_ACTIVATION[at["kind"]]
    if a.dtype.kind == "c":
        # JAX's cotangents are conjugated against ours (gradient with respect to the conjugate).
        _, pull = jax.vjp(f, jnp.asarray(a))
        return [np.conj(np.asarray(pull(jnp.asarray(np.conj(dy)))[0]))]
    if a.dtype.kind in "iu":
        d = {"Neg": -1 * np.ones_like(a) if a.dtype.kind == "i" else np.zeros_like(a) - np.ones_like(a),
             "Abs": np.sign(a), "Relu": (a > 0).astype(a.dtype)}.get(at["kind"], np.zeros_like(a))
        return [dy * d]
    _, pull = jax.vjp(f, jnp.asarray(a))
    # Not compared: kinks and infinities, where a derivative is a convention (checked by published
    # values in the unit tests), and subnormal x, which XLA flushes to zero.
    kink = {"HardSwish": 3, "HardSigmoid": 3}.get(at["kind"], 0)
    skip = ~np.isfinite(a) | (np.abs(a) < np.finfo(np.float64).tiny * 4) | (np.abs(a) == kink)
    skip |= ~np.isfinite(dy) | (np.abs(a) > 1e150)  # JAX overflows inside
    return [np.where(skip, SKIP, np.asarray(pull(jnp.asarray(dy))[0]))]


@oracle("ReluBackward")
def relu_backward(at, x):
    return [np.where(x[0].a <= 0, np.zeros_like(x[1].a), x[1].a)]


@oracle("Conjugate")
def conjugate(at, x):
    return [np.conj(x[0].a)]


@oracle("Cast")
def cast(at, x):
    a, source, to = x[0].a, x[0].dtype, at["to"]
    if to == "bool":
        return [a != 0]
    if source == "bool":
        a = a.astype(np.int64)
    if is_complex(source) and not is_complex(to):
        a = a.real
        source = "f64"
    if to in INTS and is_float(source):
        info = np.iinfo(NUMPY[to])
        out = np.zeros(a.shape, NUMPY[to])
        for i in np.ndindex(a.shape):
            v = a[i]
            out[i] = 0 if np.isnan(v) else info.min if v <= info.min else info.max if v >= info.max else int(v)
        return [out]
    return [a.astype(NUMPY[to])]


@oracle("Iota")
def iota(at, x):
    shape = at["shape"]
    r = np.arange(shape[at["axis"]]).reshape([-1 if i == at["axis"] else 1 for i in range(len(shape))])
    return [np.broadcast_to(r, shape).astype(NUMPY[at["dtype"]])]


@oracle("Copy", "StopGradient")
def identity(at, x):
    return [x[0].a]


# --- shape ----------------------------------------------------------------------------------------
def stored(shape, x):
    """Rows of packed dtypes stay whole: their last axis counts bytes."""
    return [*shape[:-1], x.a.shape[-1]] if x.dtype in PACKED else shape


@oracle("Reshape")
def reshape(at, x):
    return [np.reshape(x[0].a, stored(at["shape"], x[0]))]


@oracle("Transpose")
def transpose(at, x):
    return [np.transpose(x[0].a, at["perm"])]


@oracle("Expand")
def expand(at, x):
    return [np.broadcast_to(x[0].a, stored(at["shape"], x[0]))]


@oracle("Narrow")
def narrow(at, x):
    return [np.take(x[0].a, np.arange(at["start"], at["start"] + at["length"]), axis=at["axis"])]


@oracle("Concat")
def concat(at, x):
    return [np.concatenate([t.a for t in x], axis=at["axis"])]


@oracle("Reduce")
def reduce(at, x):
    a, axes, keep = x[0].a, tuple(at["axes"]), at["keep_dims"]
    kind = at["kind"]
    if not axes:
        return [a]
    if a.dtype.kind in "iu" and kind in ("Sum", "Prod"):
        return [{"Sum": np.sum, "Prod": np.prod}[kind](a, axis=axes, keepdims=keep, dtype=a.dtype)]
    if kind in ("Max", "Min"):
        f = np.max if kind == "Max" else np.min
        if a.dtype.kind == "f":
            initial = -np.inf if kind == "Max" else np.inf
        elif a.dtype.kind == "b":
            initial = kind == "Min"
        else:
            info = np.iinfo(a.dtype)
            initial = info.min if kind == "Max" else info.max
        return [f(a, axis=axes, keepdims=keep, initial=initial)]
    f = {"Sum": np.sum, "Mean": np.mean, "Prod": np.prod, "And": np.all, "Or": np.any}[kind]
    return [f(a, axis=axes, keepdims=keep)]


@oracle("MatMul")
def matmul(at, x):
    return [np.matmul(x[0].a, x[1].a)]


@oracle("DotGeneral")
def dot_general(at, x):
    dims = ((at["lhs_contracting"], at["rhs_contracting"]), (at["lhs_batch"], at["rhs_batch"]))
    return [np.asarray(lax.dot_general(jnp.asarray(x[0].a), jnp.asarray(x[1].a), dims))]


def take(table, indices, axis, batch_dims):
    def one(t, i, axis):
        return np.take(t, i, axis=axis)
    if batch_dims == 0:
        return one(table, indices, axis)
    parts = [take(table[k], indices[k], axis - 1, batch_dims - 1) for k in range(table.shape[0])]
    if not parts:
        shape = table.shape[:axis] + indices.shape[batch_dims:] + table.shape[axis + 1:]
        return np.zeros(shape, table.dtype)
    return np.stack(parts)


@oracle("DimSize")
def dim_size(at, x):
    return [np.int64(x[0].a.shape[at["axis"]])]


def windows_at(shape, sizes, starts, axes, batch_dims):
    """For every position of the batch axes its index and the slices of the window behind them."""
    for batch in np.ndindex(*shape[:batch_dims]):
        place = [slice(None)] * (len(shape) - batch_dims)
        for axis, size, start in zip(axes, sizes, starts[batch], strict=True):
            place[axis - batch_dims] = slice(start, start + size)
        yield batch + tuple(place), batch


@oracle("DynamicSlice")
def dynamic_slice(at, x):
    a, starts = x[0].a, x[1].a
    shape = list(a.shape)
    for axis, size in zip(at["axes"], at["sizes"], strict=True):
        shape[axis] = size
    out = np.zeros(shape, a.dtype)
    for place, batch in windows_at(a.shape, at["sizes"], starts, at["axes"], at["batch_dims"]):
        out[batch] = a[place]
    return [out]


def update_slice(target, update, starts, axes, batch_dims):
    out = target.copy()
    sizes = [update.shape[axis] for axis in axes]
    for place, batch in windows_at(target.shape, sizes, starts, axes, batch_dims):
        out[place] = update[batch]
    return [out]


@oracle("DynamicUpdateSlice")
def dynamic_update_slice(at, x):
    return update_slice(x[0].a, x[1].a, x[2].a, at["axes"], at["batch_dims"])


@oracle("KvAppend")
def kv_append(at, x):
    return update_slice(x[0].a, x[1].a, x[2].a[..., None], [at["axis"]], x[2].a.ndim)


@oracle("Gather")
def gather(at, x):
    if x[0].dtype in PACKED:
        return [take(decode(x[0]), x[1].a.astype(np.int64), at["axis"], at["batch_dims"])]
    return [take(x[0].a, x[1].a.astype(np.int64), at["axis"], at["batch_dims"])]


@oracle("GatherBackward")
def gather_backward(at, x):
    dy, indices = x[0].a, x[1].a.astype(np.int64)
    positions = take(np.arange(int(np.prod(at["shape"]))).reshape(at["shape"]), indices, at["axis"],
                     at["batch_dims"])
    out = np.zeros(at["shape"], dy.dtype)
    np.add.at(out.reshape(-1), positions.reshape(-1), dy.reshape(-1))
    return [out]


# --- random ---------------------------------------------------------------------------------------
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


# --- rows -----------------------------------------------------------------------------------------
@oracle("Softmax")
def softmax(at, x):
    if x[0].a.size == 0:
        return [x[0].a]
    return [sp.softmax(x[0].a, axis=at["axis"])]


@oracle("SoftmaxCrossEntropyWithLogits")
def cross_entropy(at, x):
    logits, labels = x[0].a, x[1].a.astype(np.int64)
    ignored = labels == at["ignore_index"] if at["ignore_index"] is not None else np.zeros(labels.shape, bool)
    safe = np.where(ignored, 0, labels)
    if labels.size == 0:
        return [np.zeros(labels.shape)]
    chosen = np.take_along_axis(sp.log_softmax(logits, axis=-1), safe[..., None], -1)[..., 0]
    chosen = np.where(np.isposinf(logits).any(-1), np.nan, chosen)  # as PyTorch; SciPy gives inf
    return [np.where(ignored, 0, -chosen)]


@oracle("SoftmaxCrossEntropyBackward")
def cross_entropy_backward(at, x):
    logits, labels, dy = x[0].a, x[1].a.astype(np.int64), x[2].a
    if logits.size == 0:
        return [np.zeros_like(logits)]
    ignored = labels == at["ignore_index"] if at["ignore_index"] is not None else np.zeros(labels.shape, bool)
    onehot = np.arange(logits.shape[-1]) == labels[..., None]
    g = (sp.softmax(logits, axis=-1) - onehot) * dy[..., None]
    return [np.where(ignored[..., None], 0, g)]


def layer_norm(a, gamma, beta, axis, eps, batch_axes):
    def align(p):  # against the rows of a
        return jnp.reshape(p, a.shape[:batch_axes] + (1,) * (axis - batch_axes) + a.shape[axis:])

    axes = tuple(range(axis, a.ndim))
    mean = jnp.mean(a, axes, keepdims=True)
    var = jnp.mean((a - mean) ** 2, axes, keepdims=True)
    y = (a - mean) / jnp.sqrt(var + eps)
    return y * (1 if gamma is None else align(gamma)) + (0 if beta is None else align(beta))


@oracle("LayerNorm")
def layer_norm_forward(at, x):
    p = [t.a for t in x] + [None, None]
    return [np.asarray(layer_norm(p[0], p[1], p[2], at["axis"], at["eps"], at["batch_axes"]))]


@oracle("LayerNormBackwardInput")
def layer_norm_backward(at, x):
    a, dy = jnp.asarray(x[0].a), jnp.asarray(x[-1].a)
    shape = a.shape[:at["batch_axes"]] + a.shape[at["axis"]:]
    gamma = jnp.asarray(x[1].a) if len(x) == 3 else jnp.ones(shape)
    f = lambda a, g, b: layer_norm(a, g, b, at["axis"], at["eps"], at["batch_axes"])  # noqa: E731
    _, pull = jax.vjp(f, a, gamma, jnp.zeros(shape))
    return [np.asarray(g) for g in pull(dy)]


@oracle("LayerNormBackwardGamma")
def layer_norm_backward_gamma(at, x):
    return [layer_norm_backward(at, x)[1]]


def rms_norm(a, gamma, beta, axis, eps, batch_axes):
    def align(p):
        return jnp.reshape(p, a.shape[:batch_axes] + (1,) * (axis - batch_axes) + a.shape[axis:])

    y = a / jnp.sqrt(jnp.mean(a**2, tuple(range(axis, a.ndim)), keepdims=True) + eps)
    return y * (1 if gamma is None else align(gamma)) + (0 if beta is None else align(beta))


@oracle("RmsNorm")
def rms_norm_forward(at, x):
    p = [t.a for t in x] + [None, None]
    return [np.asarray(rms_norm(p[0], p[1], p[2], at["axis"], at["eps"], at["batch_axes"]))]


@oracle("RmsNormBackwardInput")
def rms_norm_backward(at, x):
    a, dy = jnp.asarray(x[0].a), jnp.asarray(x[-1].a)
    shape = a.shape[:at["batch_axes"]] + a.shape[at["axis"]:]
    gamma = jnp.asarray(x[1].a) if len(x) == 3 else jnp.ones(shape)
    f = lambda a, g, b: rms_norm(a, g, b, at["axis"], at["eps"], at["batch_axes"])  # noqa: E731
    _, pull = jax.vjp(f, a, gamma, jnp.zeros(shape))
    return [np.asarray(g) for g in pull(dy)]


@oracle("RmsNormBackwardGamma")
def rms_norm_backward_gamma(at, x):
    return [rms_norm_backward(at, x)[1]]


@oracle("RmsNormBackwardBeta")
def rms_norm_backward_beta(at, x):
    return [rms_norm_backward(at, x)[2]]


# --- sorting --------------------------------------------------------------------------------------
def order_of(a, axis, descending):
    """NumPy sorts NaN last and stably; descending is a stable sort of the reversed ranks."""
    if descending:  # equal elements have one rank
        _, ranks = np.unique(a, return_inverse=True, equal_nan=True)
        a = -ranks.reshape(a.shape)
    return np.argsort(a, axis=axis, kind="stable")


@oracle("Sort")
def sort(at, x):
    order = order_of(x[0].a, at["axis"], at["descending"])
    return [np.take_along_axis(x[0].a, order, at["axis"]), order]


@oracle("ArgSort")
def arg_sort(at, x):
    return [order_of(x[0].a, at["axis"], at["descending"])]


@oracle("TopK")
def top_k(at, x):
    order = order_of(x[0].a, at["axis"], at["largest"])
    order = np.take(order, np.arange(at["k"]), axis=at["axis"])
    if not at["sorted"]:
        order = np.sort(order, axis=at["axis"])
    return [np.take_along_axis(x[0].a, order, at["axis"]), order]


# --- position -------------------------------------------------------------------------------------
def rotate(at, x, sign):
    a, cos, sin = x[0].a, x[1].a, x[2].a
    d, n_rot, layout = int(at["head_dim"]), int(at["n_rot"]), at["layout"]
    h = a.reshape(a.shape[:-1] + (a.shape[-1] // d, d)) if layout == "Packed" else a
    if layout == "BHSD":
        h = np.swapaxes(h, -3, -2)  # tokens before heads
    tokens = h.shape[-3]
    if cos.ndim == 1:
        cos, sin = cos.reshape(-1, n_rot // 2), sin.reshape(-1, n_rot // 2)
    p = np.arange(tokens)
    if len(x) > 3:
        ids = x[3].a.astype(np.int64)
        p = ids + p if ids.ndim == 0 else ids
    angle = (cos[p, :n_rot // 2] + 1j * sign * sin[p, :n_rot // 2])[..., None, :]
    first, second = (slice(0, n_rot // 2), slice(n_rot // 2, n_rot))
    if at["style"] == "GptJ":
        first, second = (slice(0, n_rot, 2), slice(1, n_rot, 2))
    turned = (h[..., first] + 1j * h[..., second]) * angle
    y = h.copy()
    y[..., first], y[..., second] = turned.real, turned.imag
    if layout == "BHSD":
        y = np.swapaxes(y, -3, -2)
    return [y.reshape(a.shape)]


@oracle("Rope")
def rope(at, x):
    return rotate(at, x, 1)


@oracle("RopeBackward")
def rope_backward(at, x):
    return rotate(at, x, -1)


@oracle("AxialRope2d")
def axial_rope2d(at, x):
    a = x[0].a
    d, end_x, r, kept = (int(at[n]) for n in ("head_dim", "end_x", "repeat_factor", "num_k_exclude"))
    # As compute_axial_cis of SAM 2.
    freqs = at["theta"] ** (-np.arange(0, d, 4) / d)
    t = np.arange(end_x * int(at["end_y"]))
    angles = np.concatenate([np.outer(t % end_x, freqs), np.outer(t // end_x, freqs)], axis=-1)
    angles = np.tile(angles, (r, 1)) if at["repeat_mode"] == "Tile" else np.repeat(angles, r, axis=0)
    angles = np.concatenate([angles, np.zeros((kept, d // 2))])
    pairs = a.reshape(a.shape[:-1] + (int(at["num_heads"]), d // 2, 2))
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)[:, None, :]
    return [np.stack([turned.real, turned.imag], axis=-1).reshape(a.shape)]


# --- sequences ------------------------------------------------------------------------------------
def lstm_pass(x, w, r, bias, h, c, lengths, backwards):
    """One layer in one direction: y, h, c. The sequences of a batch are turned around as they are long."""
    steps = np.arange(x.shape[1])
    live = steps < lengths[:, None]
    order = np.where(live, lengths[:, None] - 1 - steps, steps) if backwards else steps + 0 * lengths[:, None]
    turned = np.take_along_axis(x, order[..., None], 1)
    y = np.zeros((*x.shape[:2], h.shape[1]))
    for t in steps:
        i, f, g, o = np.split(turned[:, t] @ w.T + h @ r.T + bias, 4, axis=1)
        new_c = sp.expit(f) * c + sp.expit(i) * np.tanh(g)
        new_h = sp.expit(o) * np.tanh(new_c)
        now = live[:, t, None]
        h, c = np.where(now, new_h, h), np.where(now, new_c, c)
        y[:, t] = np.where(now, new_h, 0)
    return np.take_along_axis(y, order[..., None], 1), h, c


@oracle("Lstm")
def lstm(at, x):
    hidden, directions = at["hidden_size"], 2 if at["bidirectional"] else 1
    blocks = at["num_layers"] * directions
    y, w_ih, w_hh, bias = x[0].a, x[1].a.ravel(), x[2].a.reshape(blocks, 4 * hidden, hidden), x[3].a.reshape(blocks, -1)
    batch, steps = y.shape[:2]
    h = x[4].a if at["carry"] else np.zeros((blocks, batch, hidden))
    c = x[5].a if at["carry"] else np.zeros((blocks, batch, hidden))
    lengths = x[-1].a if at["has_lengths"] else np.full(batch, steps)
    last, offset = [], 0
    for layer in range(at["num_layers"]):
        parts = []
        for k in range(layer * directions, (layer + 1) * directions):
            count = 4 * hidden * y.shape[2]
            w = w_ih[offset:offset + count].reshape(4 * hidden, y.shape[2])
            offset += count
            backwards = at["reverse"] or k % directions == 1
            part = lstm_pass(y, w, w_hh[k], bias[k], h[k], c[k], lengths, backwards)
            parts.append(part[0])
            last.append(part[1:])
        y = np.concatenate(parts, 2)
    return [y, np.stack([p[0] for p in last]), np.stack([p[1] for p in last])]


# --- attention ------------------------------------------------------------------------------------
def attention_parts(at, x, inputs):
    """The optional operands of a call by name, and which key each query sees: [B, H, Sq, Sk]."""
    flags = [n for n in ("mask", "bias", "kv_len", "q_len") if at["has_" + n]]
    parts = {n: t.a for n, t in zip(flags, x[inputs:], strict=True)}
    s_axis, h_axis = (1, 2) if at["layout"] == "BSHD" else (2, 1)
    q, k = x[0].a.shape, x[1].a.shape
    batch, rows, keys, heads = q[0], q[s_axis], k[s_axis], q[h_axis]
    kv = np.broadcast_to(parts.get("kv_len", keys), (batch,))[:, None, None, None]
    live = np.broadcast_to(parts.get("q_len", rows), (batch,))[:, None, None, None]
    i, j = np.arange(rows)[:, None], np.arange(keys)[None, :]
    keep = (j < kv) & (i < live)
    last = i + kv - live
    if at["mask"] in ("Causal", "SlidingWindow"):
        keep = keep & (j <= last)
    if at["mask"] == "SlidingWindow":
        keep = keep & (j >= last - at["window"])
    if "mask" in parts:
        keep = keep & parts["mask"].astype(bool)[:, None, None, :]
    return parts.get("bias"), np.broadcast_to(keep, (batch, heads, rows, keys))


def attention(at, keep, q, k, v, bias):
    """The composition; a row without weight is 0."""
    if at["layout"] == "BHSD":
        q, k, v = (jnp.swapaxes(t, 1, 2) for t in (q, k, v))
    scale = at["scale"] if at["scale"] is not None else 1 / np.sqrt(max(q.shape[3], 1))
    group = q.shape[2] // max(k.shape[2], 1)
    wide_k, wide_v = (jnp.repeat(t, group, axis=2) for t in (k, v))
    s = scale * jnp.einsum("bihd,bjhd->bhij", q, wide_k)
    if at["softcap"] is not None:
        s = at["softcap"] * jnp.tanh(s / at["softcap"])
    if bias is not None:
        repeats = q.shape[0] // bias.shape[0] if bias.shape[0] else 1
        s = s + jnp.repeat(bias, repeats, axis=0)
    s = jnp.where(keep, s, -jnp.inf)
    m = lax.stop_gradient(jnp.max(s, -1, keepdims=True, initial=-jnp.inf))
    e = jnp.where(keep, jnp.exp(s - jnp.where(m > -jnp.inf, m, 0)), 0)
    z = e.sum(-1, keepdims=True)
    y = jnp.einsum("bhij,bjhd->bihd", e / jnp.where(z > 0, z, 1), wide_v)
    return jnp.swapaxes(y, 1, 2) if at["layout"] == "BHSD" else y


def library_attention(at, keep, q, k, v, bias):
    """jax.nn.dot_product_attention, whose softmax is in f32; None where it has no such call."""
    if at["layout"] == "BHSD":
        q, k, v = (np.swapaxes(t, 1, 2) for t in (q, k, v))
    empty = not q.size or not keep.size or not keep.any(-1).all()
    if empty or at["softcap"] is not None or k.shape != v.shape or bias is not None and np.isinf(bias).any():
        return None
    if bias is not None:
        bias = jnp.broadcast_to(np.repeat(bias, q.shape[0] // bias.shape[0], axis=0), keep.shape)
    scale = at["scale"] if at["scale"] is not None else 1 / np.sqrt(q.shape[3])
    y = jax.nn.dot_product_attention(q, k, v, bias=bias, mask=jnp.asarray(keep), scale=scale)
    return np.swapaxes(y, 1, 2) if at["layout"] == "BHSD" else np.asarray(y)


@oracle("Attention")
def attention_forward(at, x):
    bias, keep = attention_parts(at, x, 3)
    q, k, v = (t.a for t in x[:3])
    y = np.asarray(attention(at, keep, jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), bias))
    library = library_attention(at, keep, q, k, v, bias)
    if library is not None and not np.allclose(y, library, rtol=2e-6, atol=2e-6):
        raise ValueError("the composition is not jax.nn.dot_product_attention")
    return [y]


@oracle("AttentionBackwardAll")
def attention_backward_all(at, x):
    bias, keep = attention_parts(at, x, 4)
    args = [jnp.asarray(t.a) for t in x[:3]] + ([] if bias is None else [jnp.asarray(bias)])
    _, pull = jax.vjp(lambda q, k, v, b=None: attention(at, keep, q, k, v, b), *args)
    gradients = [np.asarray(g) for g in pull(jnp.asarray(x[3].a))]
    if bias is not None and bias.shape[3] == 1:
        gradients[3] = np.zeros_like(bias)  # one number for all keys of a row: 0 but for rounding
    return gradients


@oracle("AttentionBackward")
def attention_backward(at, x):
    wrt = ("Query", "Key", "Value", "Bias").index(at["wrt"])
    return [attention_backward_all(at, x)[wrt]]


# --- convolution and pooling ----------------------------------------------------------------------
def pads(at, r):
    p = at["padding"] or [0] * r
    if len(p) == r:
        p = p + p
    return list(zip(p[:r], p[r:]))


def lax_conv(at):
    def f(a, w):
        r = a.ndim - 2
        spec = "NC" + "DHW"[3 - r:], "OI" + "DHW"[3 - r:], "NC" + "DHW"[3 - r:]
        return lax.conv_general_dilated(
            a, w, at["stride"] or [1] * r, pads(at, r), rhs_dilation=at["dilation"] or [1] * r,
            dimension_numbers=spec, feature_group_count=int(at["groups"]))
    return f


@oracle("Conv", "Conv3d")
def conv(at, x):
    return [np.asarray(lax_conv(at)(x[0].a, x[1].a))]


@oracle("Conv2dBackwardInput")
def conv_backward_input(at, x):
    dy, w = jnp.asarray(x[0].a), jnp.asarray(x[1].a)
    _, pull = jax.vjp(lambda a: lax_conv(at)(a, w), jnp.zeros(at["shape"]))
    return [np.asarray(pull(dy)[0])]


@oracle("Conv2dBackwardWeight")
def conv_backward_weight(at, x):
    a, dy = jnp.asarray(x[0].a), jnp.asarray(x[1].a)
    _, pull = jax.vjp(lambda w: lax_conv(at)(a, w), jnp.zeros(at["shape"]))
    return [np.asarray(pull(dy)[0])]


def windows(at, a):
    """Yields (output index, slices of the window inside the image) for every window."""
    r = a.ndim - 2
    k, p = at["kernel_size"], pads(at, r)
    s = at["stride"] or k
    out = [(a.shape[2 + i] + sum(p[i]) - k[i]) // s[i] + 1 for i in range(r)]
    for o in np.ndindex(*out):
        lo = [o[i] * s[i] - p[i][0] for i in range(r)]
        yield o, tuple(slice(max(0, lo[i]), max(0, min(a.shape[2 + i], lo[i] + k[i]))) for i in range(r))


def pool_shape(at, a):
    r = a.ndim - 2
    k, p = at["kernel_size"], pads(at, r)
    s = at["stride"] or k
    return a.shape[:2] + tuple((a.shape[2 + i] + sum(p[i]) - k[i]) // s[i] + 1 for i in range(r))


@oracle("Pool")
def pool(at, x):
    a = x[0].a
    r = a.ndim - 2
    kind = at["kind"]
    k, p = at["kernel_size"], pads(at, r)
    s = at["stride"] or k
    window, strides = (1, 1) + tuple(k), (1, 1) + tuple(s)
    padding = [(0, 0), (0, 0)] + p
    if kind == "Max" or kind == "Min":
        init, f = (-np.inf, lax.max) if kind == "Max" else (np.inf, lax.min)
        return [np.asarray(lax.reduce_window(jnp.asarray(a), init, f, window, strides, padding))]
    if kind == "Prod":
        return [np.asarray(lax.reduce_window(jnp.asarray(a), 1.0, lax.mul, window, strides, padding))]
    total = np.asarray(lax.reduce_window(jnp.asarray(a), 0.0, lax.add, window, strides, padding))
    if kind == "Sum":
        return [total]
    if at["count_include_pad"]:
        return [total / np.prod(k)]
    count = np.asarray(lax.reduce_window(jnp.ones_like(a), 0.0, lax.add, window, strides, padding))
    return [np.where(count == 0, 0, total / count)]  # a window of padding alone has the mean 0


def first_max(v):
    """Position of the first maximum of a flat window, NaN the largest."""
    nan = np.isnan(v)
    return int(np.argmax(nan)) if nan.any() else int(np.argmax(v))


@oracle("MaxPoolSelect")
def max_pool_select(at, x):
    a, t = x[0].a, x[1].a
    out = np.zeros(pool_shape(at, a))
    for o, w in windows(at, a):
        for nc in np.ndindex(*a.shape[:2]):
            v = a[nc + w].reshape(-1)
            if v.size:
                out[nc + o] = t[nc + w].reshape(-1)[first_max(v)]
    return [out]


@oracle("MaxPool2dBackward")
def max_pool_backward(at, x):
    a, dy = x[0].a, x[1].a
    out = np.zeros(a.shape)
    for o, w in windows(at, a):
        for nc in np.ndindex(*a.shape[:2]):
            v = a[nc + w]
            if v.size:
                place = np.unravel_index(first_max(v.reshape(-1)), v.shape)
                out[nc + w][place] += dy[nc + o]
    return [out]


# --- quantization ---------------------------------------------------------------------------------
def decode(t):
    if t.a.size == 0:
        return np.zeros((*t.a.shape[:-1], t.a.shape[-1] // BLOCK_BYTES[t.dtype] * 32))
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(np.ascontiguousarray(t.a), PACKED[t.dtype]).astype(np.float64)


def encode(v, dtype):
    if v.size == 0:
        return np.zeros((*v.shape[:-1], v.shape[-1] // 32 * BLOCK_BYTES[dtype]), np.uint8)
    with np.errstate(all="ignore"):
        return gguf.quants.quantize(v.astype(np.float32), PACKED[dtype])


def along(values, axis, rank, dtype):
    values = np.asarray(values, dtype)
    if axis is None:
        return values.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def round_codes(v, rounding):
    return np.rint(v) if rounding == "Even" else np.trunc(v) + np.where(
        np.abs(v - np.trunc(v)) >= 0.5, np.copysign(1, v), 0)


@oracle("Quantize")
def quantize(at, x):
    v = x[0].a
    if at["dtype"] in PACKED:
        want = encode(v, at["dtype"])
        zero = 0 if at["dtype"] == "q8_0" else 0x88
        blocks = v.astype(np.float32).reshape(-1, 32)
        bytes_of_blocks = want.reshape(blocks.shape[0], -1) if v.size else want
        for b, codes in zip(blocks, bytes_of_blocks):
            # Our own rules: not finite, and so small that 1 / d is infinite.
            if not np.isfinite(b).all():
                codes[2:] = zero
                codes[:2] = np.array([np.nan], np.float16).view(np.uint8)
            elif 0 < np.abs(b).max() < 1e-37:
                codes[2:] = zero
        return [want]
    wide = np.float64 if x[0].dtype == "f64" else np.float32
    with np.errstate(all="ignore"):
        ratio = v.astype(wide) / along(at["scales"], at["axis"], v.ndim, wide)
        codes = round_codes(np.where(np.isnan(v), 0, ratio), at["rounding"]).astype(np.float64)
    info = np.iinfo(NUMPY[at["dtype"]])
    return [np.clip(codes + along(at["zero_points"], at["axis"], v.ndim, np.float64), info.min, info.max)]


@oracle("Dequantize")
def dequantize(at, x):
    if x[0].dtype in PACKED:
        return [decode(x[0])]
    wide = np.float64 if at["dtype"] == "f64" else np.float32
    q = x[0].a.astype(np.float64)
    zero = along(at["zero_points"], at["axis"], q.ndim, np.float64)
    return [(q - zero) * along(at["scales"], at["axis"], q.ndim, wide).astype(np.float64)]


@oracle("DequantMatMul")
def dequant_matmul(at, x):
    left = x[0].a
    if at["activations"] == "Int8Block" and left.size:
        left = gguf.quants.dequantize(encode(left, "q8_0"), PACKED["q8_0"]).astype(np.float64)
    return [left @ np.swapaxes(decode(x[1]), -1, -2)]


@oracle("QMatMul")
def qmatmul(at, x):
    left = x[0].a.astype(np.int64) - at["x_zero_point"]
    total = left @ (x[1].a.astype(np.int64) - np.asarray(at["w_zero_points"]))
    if len(x) > 2:
        total = total + x[2].a.astype(np.int64)
    scaled = total.astype(np.int32).astype(np.float32) * np.asarray(at["multipliers"], np.float32)
    return [np.clip(np.rint(scaled).astype(np.float64) + at["out_zero_point"], -128, 127)]


# --- comparison -----------------------------------------------------------------------------------
# --- sizes and what lies beyond them --------------------------------------------------------------
@oracle("Extent")
def extent(at, x):
    return [np.array(at["size"], np.int64)]


@oracle("FillTail")
def fill_tail(at, x):
    a, n, axis = x[0].a, int(x[1].a), at["axis"]
    dtype = NUMPY[x[0].dtype]
    if at["fill"] in ("Zero", "One"):
        value = 1 if at["fill"] == "One" else 0
    elif np.issubdtype(dtype, np.integer):
        value = np.iinfo(dtype).min if at["fill"] == "Lowest" else np.iinfo(dtype).max
    elif x[0].dtype == "bool":
        value = at["fill"] == "Highest"
    else:
        value = -np.inf if at["fill"] == "Lowest" else np.inf
    index = np.arange(a.shape[axis]).reshape([-1] + [1] * (a.ndim - 1 - axis))
    return [np.where(index < n, a, np.array(value, a.dtype))]


@oracle("Fma")
def fma(at, x):
    a, b, c = (t.a for t in x)
    if a.dtype.kind in "iu":
        with np.errstate(all="ignore"):
            return [a * b + c]
    # Exact products of the operands' own precision would need more than float64.
    exact = np.vectorize(lambda p, q, r: float(Fraction(p) * Fraction(q) + Fraction(r))
                         if np.isfinite(p) and np.isfinite(q) and np.isfinite(r) else p * q + r,
                         otypes=[np.float64])
    return [exact(a, b, c)] if a.size and b.size and c.size else [a * b + c]


@oracle("RngFold")
def rng_fold(at, x):
    seed, index = np.broadcast_arrays(x[0].a, x[1].a)
    out = np.empty(seed.shape, np.uint64)
    for i in np.ndindex(out.shape):
        word = int(index[i]) & (2**64 - 1)
        c = philox_blocks(int(seed[i]), 0x464F4C44, 1, first=word)[0]
        out[i] = c[0] | (c[1] << np.uint64(32))
    return [out]


# --- names for compositions -----------------------------------------------------------------------
def activated(at, a):
    return ACTIVATION[at["activation"]](a) if at["activation"] else a


@oracle("FusedMatMulBiasAct")
def fused_matmul_bias_act(at, x):
    return [activated(at, x[0].a @ x[1].a + x[2].a)]


@oracle("FusedMatMulResidual")
def fused_matmul_residual(at, x):
    return [x[0].a @ x[1].a + x[2].a]


@oracle("FusedConvBiasAct")
def fused_conv_bias_act(at, x):
    y = np.asarray(ORACLES["Conv"](at, x[:2])[0])
    y = y + x[2].a.reshape((1, -1) + (1,) * (y.ndim - 2))
    return [activated(at, y + x[3].a if at["has_residual"] else y)]


def residual_sum(at, x):
    s = x[0].a + x[1].a
    return s + x[2].a if at["has_bias"] else s


@oracle("FusedResidualLN")
def fused_residual_ln(at, x):
    s = residual_sum(at, x)
    d = s - s.mean(-1, keepdims=True)
    return [d / np.sqrt((d * d).mean(-1, keepdims=True) + at["eps"]) * x[-2].a + x[-1].a]


@oracle("FusedResidualRmsNorm")
def fused_residual_rms_norm(at, x):
    s = residual_sum(at, x)
    return [s / np.sqrt((s * s).mean(-1, keepdims=True) + at["eps"]) * x[-2].a + x[-1].a]


@oracle("FusedSwiGLU")
def fused_swiglu(at, x):
    up, gate = np.split(x[0].a, 2, axis=-1)
    if at["gate_first"]:
        up, gate = gate, up
    return [up * gate * sp.expit(gate)]


# Calls with graphs inside, which are not exported: unit tests hold them against the same steps
# without control flow or fusion.
WITH_BODIES = ("If", "While", "Scan", "ScanBackward", "ScanBackwardXs", "CustomFn",
               "ElementwiseRegion", "BatchElementwiseRegion", "TransformRegion", "Group")


def problem(op, got, want, dtype):
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape} against {want.shape}"
    if dtype in PACKED:
        bad = got != want
        if not bad.any():
            return None
        return f"{int(bad.sum())} bytes of {bad.size} differ, first at {np.argwhere(bad)[0]}"
    if dtype in INTS or dtype == "bool":
        bad = got != want.astype(got.dtype)
        return None if not bad.any() else f"{got[bad][0]} against {want[bad][0]}"
    if op in ("Cast", "Iota"):  # the reference leaves the one rounding to whoever stores the result
        got, want = got.astype(NUMPY[dtype]), want.astype(NUMPY[dtype])
        got = got.astype(np.complex128 if is_complex(dtype) else np.float64)
    want = want.astype(np.complex128 if is_complex(dtype) else np.float64)
    # The reference is not rounded between steps, the oracles neither: both are float64.
    with np.errstate(all="ignore"):
        finite = np.abs(want[np.isfinite(want) & (want != SKIP)])
        scale = finite.max() if finite.size else 0
        # Two-element LayerNorm rows cancel almost everything.
        relative = 1e-9 if op.startswith(("LayerNorm", "RmsNorm", "FusedResidual")) else 1e-11
        near = np.abs(got - want) <= relative * np.abs(want) + 1e-13 * scale
        if is_complex(dtype):
            same = (got == want) | ~np.isfinite(want) & ~np.isfinite(got)
        else:
            same = (got == want) | (np.isnan(got) & np.isnan(want)) | (want == SKIP)
    bad = ~(near | same)
    if not bad.any():
        return None
    return f"{got[bad][0]!r} against {want[bad][0]!r} at {tuple(np.argwhere(bad)[0])}"


def main(folder):
    total = failed = 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        spec = json.loads(path.read_text())
        raw = path.with_suffix(".bin").read_bytes()
        op = spec["op"]
        for case in spec["cases"]:
            total += 1
            name = f"{op}/{case['name']}"
            operands = [Tensor(raw, o) for o in case["operands"]]
            results = [Tensor(raw, o) for o in case["results"]]
            if op in ("Input", "Param", "Constant"):
                continue  # literals: nothing is computed
            if op in WITH_BODIES:
                total -= 1
                continue
            if op not in ORACLES:
                print(f"FAILED {name}: no oracle")
                failed += 1
                continue
            try:
                want = ORACLES[op](case["attrs"], operands)
                errors = [problem(op, r.a, w, r.dtype) for r, w in zip(results, want, strict=True)]
                error = next((e for e in errors if e), None)
            except Exception as e:  # an oracle that cannot express the case is a failure to see
                error = f"oracle: {type(e).__name__}: {e}"
            if error:
                failed += 1
                print(f"FAILED {name}: {error}")
    print(f"{total} cases, {failed} failed")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
