"""Renders answers for people, in a terminal or as one self-contained page. Decides nothing.

- ``audit/``, ``run/``, ``spikes/``: what is drawn, a package each, with its templates under ``templates/``;
- `html`: how a page comes about in which nothing from data can act; `preview`: how a record is shown;
- the modules beside them say in a terminal what a command found, one a command.
"""
