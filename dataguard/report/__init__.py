"""Renders answers for people, in a terminal or as one self-contained page. Decides nothing."""
