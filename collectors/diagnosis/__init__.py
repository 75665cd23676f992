"""Picture in, verdict out: pure functions and the tables that they go by."""
