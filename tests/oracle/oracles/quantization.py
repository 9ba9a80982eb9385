"""Quantized tensors and products."""
import gguf
import gguf.quants
import numpy as np

from .packed import PACKED, decode, encode
from .registry import NUMPY, oracle


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
