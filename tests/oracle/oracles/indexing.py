"""Gather, slices at positions given by data, sorting."""
import numpy as np

from .packed import PACKED, decode
from .registry import oracle


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
