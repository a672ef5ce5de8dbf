"""The operations a network is made of, once for each kind of device.

Reading order: ``errors``, ``ops`` (the list of operations), ``devices`` (which one runs
them), ``reference`` (slow, obvious versions), ``blocks`` (GGUF block formats), ``dense`` (whole
matrices of them), ``cpu`` (NumPy arrays and compiled kernels), ``gpu`` (MLX arrays).
"""

__all__ = ["blocks", "cpu", "dense", "devices", "errors", "gpu", "ops", "reference"]
