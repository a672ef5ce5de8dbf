"""Measuring this program: ``model`` (speed of a model file), ``cli`` (the command ds4-bench)."""

__all__ = ["cli", "model"]
