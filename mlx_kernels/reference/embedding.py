"""Looking up tokens in a table."""

import numpy as np


def embedding(table: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    """Rows ``token_ids`` [T] of a table [V, C] -> [T, C]."""
    return np.stack([table[token] for token in token_ids]).astype(np.float64)
