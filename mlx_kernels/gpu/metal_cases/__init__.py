"""Cases of the project's own Metal kernels.

Tests run them on Linux, lane by lane; ``examples/metal_smoke.py`` runs them on a Mac. Each module
of this folder other than ``case`` has a tuple ``CASES``.
"""

import importlib
import pkgutil

from mlx_kernels.gpu.metal_cases.case import (
    Case,
    Comparison,
    Run,
    Traffic,
    random_for,
    worst_share,
)

__all__ = ["Case", "Comparison", "Run", "Traffic", "all_cases", "random_for", "worst_share"]


def all_cases() -> tuple[Case, ...]:
    """Every case, by modules in alphabetical order."""
    cases: list[Case] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        if module != "case":
            cases += importlib.import_module(f"{__name__}.{module}").CASES
    assert len({case.name for case in cases}) == len(cases), "two cases of one name"
    return tuple(cases)
