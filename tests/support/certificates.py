"""The certificates of :mod:`rig.certificates`, by the name that tests know."""

from rig.certificates import DAY, Authority, Issued, Stores, now, subject

__all__ = ["DAY", "Authority", "Issued", "Stores", "now", "subject"]
