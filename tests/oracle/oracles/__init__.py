"""What NumPy, SciPy, JAX and gguf say about every op; importing the package registers all of it."""
import warnings

import jax

jax.config.update("jax_enable_x64", True)  # before anything makes an array
warnings.simplefilter("ignore")

from . import (attention, convolution, custom, elementwise, fused, indexing,  # noqa: E402, F401
               quantization, random_numbers, rows, sequences, shapes)
