"""The gpu world: MLX arrays, evaluated when they are needed. One module: ``operations``."""

__all__ = ["operations"]
