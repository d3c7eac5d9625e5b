"""Takes both models of starting to ten thousand hosts, with durations drawn from what was measured on a few."""
