"""What is to be done about a sample? Policies: rules over signals, the verdicts they give, and their account.

Data goes `document` (policy.toml as written, every misspelling told) -> `checking` (every rule that cannot mean
anything told) -> `rules` (the `Policy`, with a digest) -> `fitting` (against the sources there are) -> `gate` (signals
to verdicts). `policy` offers the way in, `account`, `batches` and `shards` what is said of many samples together.
"""
