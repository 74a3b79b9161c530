"""The environments of a pod: built, verified, found again, removed."""
