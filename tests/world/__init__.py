"""The outside world of a test: real processes on loopback. Conftests take the fixtures from `fixtures.py`."""
