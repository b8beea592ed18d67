"""Carry out a change set: the only code that starts and stops processes. It decides nothing."""
