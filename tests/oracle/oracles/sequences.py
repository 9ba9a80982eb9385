"""Rotary positions and recurrent layers."""
import numpy as np
import scipy.special as sp

from .registry import oracle


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
