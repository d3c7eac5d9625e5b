"""Versions of messages that are newer than kio, written as in kio. :mod:`broker.protocol.codec` finds them here."""
