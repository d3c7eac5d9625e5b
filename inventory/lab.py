#!/usr/bin/env python3
"""Ansible's inventory of a lab: LANDLINE_LAB says which, BROKERS_PER_HOST how many brokers each host runs."""

import sys
from pathlib import Path

# In place of this directory, where `lab` would be this very file.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lab.inventory import main  # noqa: E402 (see above)

main()
