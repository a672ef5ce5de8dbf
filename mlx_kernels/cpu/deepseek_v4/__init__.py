"""DeepSeek V4's operations on NumPy arrays. ``operations.py`` binds the other files."""
