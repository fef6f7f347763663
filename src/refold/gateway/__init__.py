"""Floor 4: effects on the outside world. What is done once, what may be done again, and what is not known."""
