"""What the Slurm executor is made of: Slurm's commands, job steps, and the folder that a job shares."""
