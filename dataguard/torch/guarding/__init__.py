"""A loader that exists already, put on record without changing what it yields: `guard`.

A batch is taken from the wrapped loader together with the indices it was made of, judged, recorded and handed over as
it is; a plan of form ``given`` says that its order comes from outside.
"""
