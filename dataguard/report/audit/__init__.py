"""The page of an audit: what is on it, how it is drawn, and what ``audit`` says in a terminal."""
