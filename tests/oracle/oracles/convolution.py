"""Convolution and pooling."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import oracle


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
