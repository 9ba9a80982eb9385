"""Blocks of packed dtypes, which are exported as their bytes: these take the place of the last axis."""
import gguf
import gguf.quants
import numpy as np

PACKED = {"q4_0": gguf.GGMLQuantizationType.Q4_0, "q8_0": gguf.GGMLQuantizationType.Q8_0}
BLOCK_BYTES = {"q4_0": 18, "q8_0": 34}


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
