#!/usr/bin/env python3
"""Ansible's inventory of a lab: LANDLINE_LAB is its name, BROKERS_PER_HOST the number of brokers on
each host.
"""

import sys
from pathlib import Path

# Replaces this directory, in which `lab` would be this file.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lab.inventory import main  # noqa: E402 (see above)

main()
