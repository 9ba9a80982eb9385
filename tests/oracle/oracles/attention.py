"""Attention and its gradients."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import oracle


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
