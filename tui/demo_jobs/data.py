"""The demo's data: shards that come from a store on the network."""

import socket

import torch


class Shards(torch.utils.data.Dataset):
    """Reads one example a step; a store that never answers stops the reader here."""

    def __init__(self, stuck_at=None):
        self.stuck_at = stuck_at
        self.store, self._peer = socket.socketpair()

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.stuck_at is not None and index >= self.stuck_at:
            return self.fetch(index)
        return torch.randn(64)

    def fetch(self, index):
        print(f"reading shard store://train-{index:05d} (attempt 3)", flush=True)
        return self.store.recv(64)  # the store accepted the request and never answers
