"""What is to be done about a sample? Policies: rules over signals, the verdicts they give, and their account.

Data goes `document` (policy.toml as written) -> `policy` (checked, with a digest) -> `gate` (signals to verdicts).
"""
