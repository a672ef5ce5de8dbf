"""The operations a network is made of, once for each kind of device.

Reading order: ``errors``, ``blocks`` (GGUF block formats), ``ops`` (the list of operations and
the choice of a device), ``reference`` (slow, obvious versions), ``cpu.operations`` (NumPy),
``gpu.operations`` (MLX).
"""

__all__ = ["blocks", "cpu", "errors", "gpu", "ops", "reference"]
