"""Measuring this program; README.md says how to run and read it.

Reading order: ``cli`` (the command ds4-bench), ``model`` (speed of a model file),
``llama_cpp_peer`` (another program beside it), ``logits`` (its results, not its speed), ``kernels``
(speed of single operations), ``kernel_cases`` and ``kernel_shapes`` (what is timed),
``random_weights`` (with what), ``sessions`` (saving and loading conversations) of
``session_states`` (random ones), ``report`` (JSON, CSV and tables).
"""

__all__ = [
    "cli",
    "kernel_cases",
    "kernel_shapes",
    "kernels",
    "llama_cpp_peer",
    "logits",
    "model",
    "random_weights",
    "report",
]
