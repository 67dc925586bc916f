"""Walks the addresses of one rank: read, collate, record, deliver. Knows no framework.

In come a run, an attempt's plan and a rank; out come microbatches, each recorded before it is handed over. What a
prefetching thread holds is never part of a state.
"""
