"""The cost test, ``make cost``: what the smallest elements of every array that the broker decodes cost it.

A request is judged by the work that it can cause in relation to its size. ``asked`` lists the requests:
every API, version and array, with a number of smallest elements. ``asking`` sends them to a whole broker in
this process and measures its CPU time, the bytes of its answer and the memory that it keeps. ``states``
requests expensive state, once and repeatedly. ``table`` has the committed table, the comparison with it, and
its output.
"""
