"""Landline: a Kafka-compatible broker. The version is pyproject.toml's, kept here because metadata is slow
to read.
"""

__version__ = "0.1.0"
