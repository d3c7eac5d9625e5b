"""The cost test, ``make cost``: what the smallest elements of every array that the broker decodes cost it.

A request is judged by what it can make the broker do for its bytes. ``asked`` says what is asked: every API, version
and array, with so many smallest elements. ``asking`` asks it of a whole broker in this process and counts its CPU time,
the bytes of its answer and what it keeps. ``states`` asks for state that is dear, once and again and again.
``table`` is the committed table, what is held against it, and how that is shown.
"""
