"""Everything a person sees: the command line, the text answers, the terminal app."""
