"""Views, sizes, reductions and plain products."""
import jax.numpy as jnp
import numpy as np
from jax import lax

from .packed import PACKED
from .registry import NUMPY, oracle


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


@oracle("DimSize")
def dim_size(at, x):
    return [np.int64(x[0].a.shape[at["axis"]])]


@oracle("BindSize")
def bind_size(at, x):
    return [np.array(x[0].a, np.int64)]


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
