"""What could come next in a line that a person types, on every screen.

``suggest`` knows commands, their arguments, files and earlier messages; ``file_index`` has the
names below the folder, ``fuzzy`` finds a name by some of its letters.
"""

__all__ = ["file_index", "fuzzy", "suggest"]
