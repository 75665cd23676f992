"""The shared stream: what agents write into a run directory and what every monitor reads from it."""
