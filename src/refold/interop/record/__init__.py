"""Recording of agents that nobody rewrites, at the transport of their HTTP clients, and replay of what was recorded."""
