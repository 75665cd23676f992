"""The commands that answer in text: each module one command, none imports Textual."""
