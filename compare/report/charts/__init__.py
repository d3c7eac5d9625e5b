"""Draws the report's pictures with matplotlib, each in a wide and a narrow form, for light and
dark screens.
"""
