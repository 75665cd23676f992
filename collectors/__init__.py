"""What ranktop collects and concludes; nothing here knows of a screen. Arrows point one way, see CONTRIBUTING."""
