"""Walks the addresses of one rank: read, collate, record, deliver. Knows no framework.

In come a run, an attempt's plan and a rank; out come microbatches, each recorded before it is handed over. What is read
ahead, by threads or by the worker processes of an adapter (`reading`), is never part of a state. How ranks come to one
attempt is in `agreeing`.
"""
