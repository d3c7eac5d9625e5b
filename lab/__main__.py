"""`python -m lab`: see `cli`."""

from lab.cli import main

main()
