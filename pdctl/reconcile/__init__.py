"""What must be done now, and why: a pure function from plan and observation to a change set."""
