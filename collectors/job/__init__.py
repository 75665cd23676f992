"""The merged picture of one job, from records or from dumps."""
