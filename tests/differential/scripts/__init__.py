"""The scripts, by area."""
