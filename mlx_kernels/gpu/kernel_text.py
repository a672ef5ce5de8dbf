"""Texts of kernels, short: MLX copies and hashes a whole text at every launch.

At 26 KB that took some 5 microseconds of the host, as long as all else of a launch.
"""

import re
from functools import cache
from importlib import resources

from mlx_kernels.blocks import BLOCK

# A struct of a block format, or the template of one, as the files in ``bodies/`` write them.
_STRUCT = re.compile(r"^(?:template <[^>\n]*>\n)?struct (\w+) \{\n.*?^\};\n", re.M | re.S)
_ALIAS = re.compile(r"^using (\w+) = (\w+)<\w+>;\n", re.M)


@cache
def body_text(file: str) -> str:
    """A file of ``bodies/``."""
    return resources.files("mlx_kernels.gpu").joinpath("bodies", file).read_text(encoding="utf-8")


def compact(text: str) -> str:
    """Drop comments, indentation and empty lines. The texts have no // inside of strings."""
    lines = (line.split("//")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def only_format(text: str, name: str) -> str:
    """Drop the structs of block formats other than ``name``."""
    templates = {alias[1]: alias[2] for alias in _ALIAS.finditer(text)}
    formats = {block.name for block in BLOCK.values()} | set(templates.values())
    dropped = formats - {name, templates.get(name)}
    text = _STRUCT.sub(lambda found: "" if found[1] in dropped else found[0], text)
    return _ALIAS.sub(lambda found: "" if found[1] in dropped else found[0], text)
