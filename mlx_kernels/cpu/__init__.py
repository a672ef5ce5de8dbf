"""The cpu world: NumPy arrays, evaluated at once. One module: ``operations``."""

__all__ = ["operations"]
