"""What enters a stage's own processes, as files beside the run."""
