"""Events of training logs, in a terminal and as a picture."""
