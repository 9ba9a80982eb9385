"""Names for compositions."""
import numpy as np
import scipy.special as sp

from .convolution import conv
from .elementwise import ACTIVATION
from .registry import oracle


def activated(at, a):
    return ACTIVATION[at["activation"]](a) if at["activation"] else a


@oracle("FusedMatMulBiasAct")
def fused_matmul_bias_act(at, x):
    return [activated(at, x[0].a @ x[1].a + x[2].a)]


@oracle("FusedMatMulResidual")
def fused_matmul_residual(at, x):
    return [x[0].a @ x[1].a + x[2].a]


@oracle("FusedConvBiasAct")
def fused_conv_bias_act(at, x):
    y = np.asarray(conv(at, x[:2])[0])
    y = y + x[2].a.reshape((1, -1) + (1,) * (y.ndim - 2))
    return [activated(at, y + x[3].a if at["has_residual"] else y)]


def residual_sum(at, x):
    s = x[0].a + x[1].a
    return s + x[2].a if at["has_bias"] else s


@oracle("FusedResidualLN")
def fused_residual_ln(at, x):
    s = residual_sum(at, x)
    d = s - s.mean(-1, keepdims=True)
    return [d / np.sqrt((d * d).mean(-1, keepdims=True) + at["eps"]) * x[-2].a + x[-1].a]


@oracle("FusedResidualRmsNorm")
def fused_residual_rms_norm(at, x):
    s = residual_sum(at, x)
    return [s / np.sqrt((s * s).mean(-1, keepdims=True) + at["eps"]) * x[-2].a + x[-1].a]


@oracle("FusedSwiGLU")
def fused_swiglu(at, x):
    up, gate = np.split(x[0].a, 2, axis=-1)
    if at["gate_first"]:
        up, gate = gate, up
    return [up * gate * sp.expit(gate)]
