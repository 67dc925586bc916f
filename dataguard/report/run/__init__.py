"""The page of a run: `facts` says what is on it, the modules beside it gather that, `page` makes it HTML.

What goes in is a run directory (and its shards, where they can be read); what comes out is one self-contained page.
Nothing is decided here: verdict and evidence are those of `dataguard.triage`.
"""
