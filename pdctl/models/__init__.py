"""What is known about the model that a deployment serves, without reading its weights."""
