"""The cpu world: NumPy arrays, evaluated at once.

Reading order: ``operations``, ``native`` (the compiled kernels; their C is in ``csrc``, where
``ds4_native.h`` comes first), ``native_library`` (finding and loading them).
"""

__all__ = ["native", "native_library", "operations"]
