"""Softmax, losses and normalization of rows."""
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special as sp

from .registry import oracle


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
