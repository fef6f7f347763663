"""The world outside of an agent, as processes of their own: a payment service, a scripted model, a real small one.

The demo and the crash tests run against them. Each keeps a log of what it did, and that log is the truth that a
ledger is compared with.
"""
