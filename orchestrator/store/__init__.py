"""What the laptop remembers: launches, machines, host keys, runs."""
