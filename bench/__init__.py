"""What ranktop costs, measured in pairs."""
