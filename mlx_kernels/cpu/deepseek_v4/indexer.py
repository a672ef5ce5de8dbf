"""The indexer: which compressed rows a position reads, where there are more than top-k.

Small queries, several a position, are compared with a small row for each compressed row. A score
below zero counts as none (ReLU), and the rest is weighted by head. The best rows are read; among
equal scores, which are common because of the ReLU, those of the lowest index.
"""

import numpy as np


def scores(queries: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the score of rows [N, di] for one position's queries [Hi, di], weights [Hi] -> [N]."""
    products = queries @ rows.T  # [Hi, N]
    np.maximum(products, 0, out=products)
    return weights @ products


def best_rows(score: np.ndarray, top_k: int) -> np.ndarray:
    """Return the indices of the largest scores, ascending; the lowest index first among equals."""
    n = len(score)
    if n <= top_k:
        return np.arange(n)
    least = np.partition(score, n - top_k)[n - top_k]  # the top_k-th largest
    above = np.flatnonzero(score > least)
    ties = np.flatnonzero(score == least)[: top_k - len(above)]
    return np.sort(np.concatenate([above, ties]))
