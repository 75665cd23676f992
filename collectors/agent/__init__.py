"""One process a host: reads its ranks, GPUs, processes and logs, and writes the host's part of the stream."""
