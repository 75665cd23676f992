"""ranktop: a terminal monitor for distributed PyTorch training jobs."""

__version__ = "0.1.0"
