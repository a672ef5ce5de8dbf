"""The operations of DeepSeek V4 on MLX arrays, in plain MLX: they run on every device of MLX."""
