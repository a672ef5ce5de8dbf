"""llama.cpp's HTTP server through the package xllamacpp, for ``ds4agent.bench.server``.

Run as a file by a Python that has the package: ``python server_peer.py MODEL CTX THREADS``. It
prints its address and serves until its standard input ends.
"""

import sys


def main() -> None:
    """Serve."""
    import xllamacpp

    path, ctx, n_threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = ctx
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = n_threads
    params.cpuparams_batch.n_threads = n_threads
    params.port = 0
    params.use_jinja = True
    params.verbosity = -1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"peer at {server.listening_address} ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
