"""The command line: parse, call one function, render; nothing else.

In comes what a person or a script typed; out go one answer on standard output (text, or JSON with ``--json``),
everything else on standard error, and an exit code of the closed list in ``dataguard.errors``. `main` holds the table
of commands, each of which is imported when it is asked for; `output` is the one way to answer, `options` the shared
spellings, `failures` the mapping of what went wrong to an exit code.
"""
