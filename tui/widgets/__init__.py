"""The pieces of the screen: line-API widgets that repaint only lines whose displayed text changed."""
