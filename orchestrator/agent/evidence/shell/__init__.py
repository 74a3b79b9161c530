"""What is seen of the shells of a stage: their scripts, the commands that ran, and what becomes of exit codes."""
