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


def norm(a, gamma, beta, at, centered):
    axis, batch_axes = at["axis"], at["batch_axes"]

    def align(p):  # against the rows of a
        return jnp.reshape(p, a.shape[:batch_axes] + (1,) * (axis - batch_axes) + a.shape[axis:])

    axes = tuple(range(axis, a.ndim))
    x = a - jnp.mean(a, axes, keepdims=True) if centered else a
    y = x / jnp.sqrt(jnp.mean(x**2, axes, keepdims=True) + at["eps"])
    return y * (1 if gamma is None else align(gamma)) + (0 if beta is None else align(beta))


def norm_oracles(name, centered):
    @oracle(name)
    def forward(at, x):
        a, gamma, beta = ([t.a for t in x] + [None, None])[:3]
        return [np.asarray(norm(a, gamma, beta, at, centered))]

    @oracle(name + "BackwardInput")
    def backward(at, x):
        a, dy = jnp.asarray(x[0].a), jnp.asarray(x[-1].a)
        shape = a.shape[:at["batch_axes"]] + a.shape[at["axis"]:]
        gamma = jnp.asarray(x[1].a) if len(x) == 3 else jnp.ones(shape)
        _, pull = jax.vjp(lambda a, g, b: norm(a, g, b, at, centered), a, gamma, jnp.zeros(shape))
        return [np.asarray(g) for g in pull(dy)]

    @oracle(name + "BackwardGamma")
    def backward_gamma(at, x):
        return [backward(at, x)[1]]

    return backward


norm_oracles("LayerNorm", True)
rms_norm_backward = norm_oracles("RmsNorm", False)


@oracle("RmsNormBackwardBeta")
def rms_norm_backward_beta(at, x):
    return [rms_norm_backward(at, x)[2]]
