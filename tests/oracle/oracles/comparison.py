"""What counts as equal."""
import numpy as np

from .packed import PACKED
from .registry import INTS, NUMPY, SKIP, is_complex


def problem(op, got, want, dtype):
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape} against {want.shape}"
    if dtype in PACKED:
        bad = got != want
        if not bad.any():
            return None
        return f"{int(bad.sum())} bytes of {bad.size} differ, first at {np.argwhere(bad)[0]}"
    if dtype in INTS or dtype == "bool":
        bad = got != want.astype(got.dtype)
        return None if not bad.any() else f"{got[bad][0]} against {want[bad][0]}"
    if op in ("Cast", "Iota"):  # the reference leaves the one rounding to whoever stores the result
        got, want = got.astype(NUMPY[dtype]), want.astype(NUMPY[dtype])
        got = got.astype(np.complex128 if is_complex(dtype) else np.float64)
    want = want.astype(np.complex128 if is_complex(dtype) else np.float64)
    # The reference is not rounded between steps, the oracles neither: both are float64.
    with np.errstate(all="ignore"):
        finite = np.abs(want[np.isfinite(want) & (want != SKIP)])
        scale = finite.max() if finite.size else 0
        # Two-element LayerNorm rows cancel almost everything.
        relative = 1e-9 if op.startswith(("LayerNorm", "RmsNorm", "FusedResidual")) else 1e-11
        near = np.abs(got - want) <= relative * np.abs(want) + 1e-13 * scale
        if is_complex(dtype):
            same = (got == want) | ~np.isfinite(want) & ~np.isfinite(got)
        else:
            same = (got == want) | (np.isnan(got) & np.isnan(want)) | (want == SKIP)
    bad = ~(near | same)
    if not bad.any():
        return None
    return f"{got[bad][0]!r} against {want[bad][0]!r} at {tuple(np.argwhere(bad)[0])}"
