"""Run every Metal kernel of the project on this Mac and compare the results.

    python examples/metal_smoke.py [WORD ...]      only cases with one of the words in their name

The cases are those that the tests run on Linux, lane by lane (tests/metal). A share of 1 is the
largest difference that a case allows. Ends with 1 when a case fails or there is no Metal device.
"""

import sys
import time

import mlx.core as mx


def main(words: list[str]) -> int:
    if not mx.metal.is_available():
        print("no Metal device here: this needs a Mac with Apple silicon and the mlx package")
        return 1
    from mlx_kernels.gpu.metal_cases import all_cases, random_for, worst_share

    n_failed = 0
    for case in all_cases():
        if words and not any(word in case.name for word in words):
            continue
        start = time.perf_counter()
        try:
            run = case.run(mx.fast.metal_kernel, random_for(case.name))
            share = max(worst_share(comparison) for comparison in run.comparisons)
            verdict = f"{share:8.3f} of the allowed difference"
        except Exception as error:  # whatever one kernel does, the others are still tried
            share, verdict = float("inf"), f"{type(error).__name__}: {error}"
        is_right = share <= 1
        n_failed += not is_right
        seconds = time.perf_counter() - start  # mostly the compilation of the kernel
        print(f"{'ok' if is_right else 'FAILED':6} {case.name:60} {verdict}  {seconds:.2f} s")
    print("all cases are right" if not n_failed else f"{n_failed} cases failed")
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
