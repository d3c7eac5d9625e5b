"""The pipeline's errors: what a job says in one line before it ends with 1."""

from __future__ import annotations


class PipelineError(Exception):
    """A job cannot run as it was asked to; the message says why and what to do."""


class SchemaError(PipelineError):
    """A schema, or an option that names its fields, is not one that a lake can have."""


def first_line(error: Exception) -> str:
    """What an error says first: Spark's go on with a plan or a stack."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
