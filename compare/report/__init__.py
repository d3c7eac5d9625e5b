"""Makes one page of a comparison: what was measured, shown, simulated and concluded, for who never saw the project."""
