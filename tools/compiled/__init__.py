"""Compiles the modules of the request path with mypyc, as one group: ADR 38.

``rules`` is what a compiled module must keep to, ``store_first`` mends the C code that mypyc writes, and ``build``
makes the extension modules. The sources stay Python and run as they are without them.
"""
