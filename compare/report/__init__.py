"""Creates one page about a comparison: what was measured, shown, simulated and concluded, for readers who do
not know the project.
"""
