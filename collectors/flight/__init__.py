"""PyTorch's flight recorder: its dumps read safely, and the pattern of a group's operations."""
