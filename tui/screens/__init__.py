"""The screens: grid, one rank, diagnosis, help."""
