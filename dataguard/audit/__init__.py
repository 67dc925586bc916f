"""Is this corpus fit to train on? Offline scoring of whole corpora: engines, account, duplicates, drift, outputs."""
