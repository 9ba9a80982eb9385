"""The custom ops of the samples."""
import numpy as np

from .registry import INTS, NUMPY, oracle


def affine(x, attributes):
    a, b = (int(v) for v in np.array([ord(c) for c in attributes], np.uint8).view(np.int8))
    if x.dtype == "bool":
        return [x.a]
    if x.dtype in INTS:
        wide = x.a.astype(np.int64).astype(np.uint64)
        return [(wide * np.uint64(a % 2**64) + np.uint64(b % 2**64)).astype(x.a.dtype)]
    with np.errstate(all="ignore"):
        return [a * x.a + b]


def scale_norm(x, s):
    return [s.a * x.a, np.sum(x.a * x.a)]


def matches(x):
    return [np.sum(x.a[:, None] == x.a, axis=1, dtype=np.int64)]


def ramp(attributes):
    dtype, size = attributes.split()
    return [np.arange(int(size)).astype(NUMPY[dtype])]


@oracle("Custom")
def custom(at, x):
    match at["name"]:
        case "sample.affine":
            return affine(x[0], at["attributes"])
        case "sample.scale_norm":
            return scale_norm(*x)
        case "sample.matches":
            return matches(x[0])
        case "sample.ramp":
            return ramp(at["attributes"])
