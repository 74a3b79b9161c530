"""What is large: many files, much output, limits, full disks."""
