"""What people and programs read: pure functions from values to lines or JSON.

Lines are plain text with colour codes. What redraws itself in place needs rich, and imports it when called.
"""
