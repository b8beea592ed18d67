"""Logins through the `ssh` program, for sites whose way of logging in only that program knows."""
