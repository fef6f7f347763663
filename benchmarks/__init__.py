"""What refold costs, each row beside its floor and beside a peer, in one run on one machine. `python -m
benchmarks.run`.
"""
