"""The parts of a broker that a test has, as the ApiContext that handlers take: compiled ones take nothing else."""

from __future__ import annotations

from dataclasses import fields

from broker.server.apis.context import ApiContext


def context_of(parts: object) -> ApiContext:
    """A context with those of an object's attributes that it knows, as they are now. What a test lacks is an
    AttributeError when a handler reads it.
    """
    context = ApiContext.__new__(ApiContext)
    for field in fields(ApiContext):
        if hasattr(parts, field.name):
            setattr(context, field.name, getattr(parts, field.name))
    return context
