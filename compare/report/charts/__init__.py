"""Draws the report's pictures with matplotlib, each wide and narrow, for light and dark."""
