"""How the facts of a run are laid out: words and rows for the templates, numbers for the page's script.

Nothing is read here and nothing judged; what goes in is `RunFacts`, and every text that goes to the script is made
harmless on the way.
"""
