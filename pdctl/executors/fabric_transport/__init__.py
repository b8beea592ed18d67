"""Logins through fabric, which is walled here: connections of pdctl's own process, kept and reused."""
