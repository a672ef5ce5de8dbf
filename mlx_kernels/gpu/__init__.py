"""The gpu world: MLX arrays, evaluated when they are needed.

One file per operation (``attention``, ``embedding``, ``kv_buffer``, ``moe``, ``norm``, ``rope``,
``swiglu``, ``dense_linear``, ``planar_linear``, ``planar_moe``); ``operations`` binds them.
README.md tells how a kernel is written.
"""
