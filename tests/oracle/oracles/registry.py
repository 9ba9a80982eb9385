"""The oracles by the names of their ops, and the tensors they are given."""
import ml_dtypes
import numpy as np

from .packed import BLOCK_BYTES, PACKED

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
NUMPY = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
         "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
         "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "c64": np.complex64, "c128": np.complex128}


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
            if n in ORACLES:
                raise ValueError(f"two oracles for {n}")
            ORACLES[n] = f
        return f
    return register


# Calls with graphs inside, which are not exported: unit tests hold them against the same steps
# without control flow or fusion.
WITH_BODIES = ("If", "While", "Scan", "ScanBackward", "ScanBackwardXs", "CustomFn",
               "ElementwiseRegion", "BatchElementwiseRegion", "TransformRegion", "Group")

# Nothing is computed.
LITERALS = ("Input", "Param", "Constant")
