"""The pipeline's errors: a job prints one as a line before it exits with 1."""

from __future__ import annotations


class PipelineError(Exception):
    """A job cannot run as requested; the message says why and what to do."""


class SchemaError(PipelineError):
    """A lake cannot have this schema, or an option names an unsuitable field."""


def first_line(error: Exception) -> str:
    """The first line of an error: Spark's continue with a plan or a stack."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
