"""What to do, and what else it could be: tables, a row for each cause and its variants."""
