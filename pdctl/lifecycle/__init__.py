"""What people do with deployments, one file per act: the face that the command line talks to.

The acts are imported from their own files, so that `plan` doesn't pay for what only `up` needs.
"""
