"""Landline: a Kafka-compatible broker. The version is that of pyproject.toml, repeated here because reading
package metadata is slow.
"""

__version__ = "0.5.0"
